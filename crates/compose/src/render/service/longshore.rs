//! The `x-longshore` mapping of a service.

use longshore_model::{
    Driver, ServiceSpec,
    service::{
        Batching, Companion, DelayFunction, DeviceAffinity, DeviceRequest, Disconnect, PoolSelector, Promotion,
        Rebalance, Reconcile, Replace, Reschedule, Strength,
    },
};
use serde_json::{Value, json};

use super::{Section, strategy, texts};
use crate::units::print_duration;

pub(super) fn render(spec: &ServiceSpec) -> Value {
    let placement = &spec.placement;
    let mut out = Section::default();
    out.put("placement", strategy(spec)).put("hosts", texts(&placement.hosts));
    match &placement.pool {
        PoolSelector::Default => {}
        PoolSelector::All => {
            out.put("pool", "all");
        }
        PoolSelector::Named(name) => {
            out.put("pool", name.as_str());
        }
    }
    if spec.priority != 50 {
        out.put("priority", spec.priority);
    }
    if spec.driver != Driver::Docker {
        out.put("driver", spec.driver.as_str());
    }
    wishes(spec, &mut out);
    changes(spec, &mut out);
    out.put("secrets_required", texts(&spec.secrets_required)).put("max_concurrent", spec.max_concurrent);
    out.done()
}

fn wishes(spec: &ServiceSpec, out: &mut Section) {
    let placement = &spec.placement;
    let affinities = placement.affinities.iter();
    let affinities: Vec<Value> =
        affinities.map(|liking| json!({ "match": liking.matches.to_string(), "weight": liking.weight })).collect();
    let targets = placement.spread_targets.iter();
    let targets: Vec<Value> = targets
        .map(|target| {
            let mut out = Section::default();
            out.put("over", target.over.to_string()).put("weight", target.weight).put("targets", &target.percent);
            out.done()
        })
        .collect();
    let distinct = placement.distinct_property.iter();
    let distinct: Vec<Value> =
        distinct.map(|rule| json!({ "attribute": rule.attribute.to_string(), "limit": rule.limit })).collect();
    out.put("devices", spec.resources.device_requests.iter().map(device).collect::<Vec<_>>());
    out.put("affinities", affinities).put("spread", targets).put("distinct_property", distinct);
    if placement.distinct_hosts {
        out.put("distinct_hosts", true);
    }
    let mode = spec.container.namespaces.network.as_deref().and_then(|mode| mode.strip_prefix("service:"));
    let near = placement.near.iter().filter(|near| Some(near.service.as_str()) != mode);
    out.put("near", near.map(companion).collect::<Vec<_>>());
    out.put("away_from", placement.away_from.iter().map(companion).collect::<Vec<_>>());
    out.put("max_skew", placement.max_skew);
    if placement.batching == Batching::AllOrNothing {
        out.put("all_or_nothing", true);
    }
}

fn device(request: &DeviceRequest) -> Value {
    let mut out = Section::default();
    out.put("device", request.id()).put("count", request.count);
    out.put("constraints", request.constraints.iter().map(ToString::to_string).collect::<Vec<_>>());
    let like = |like: &DeviceAffinity| json!({ "match": like.matches.to_string(), "weight": like.weight });
    out.put("affinities", request.affinities.iter().map(like).collect::<Vec<_>>());
    out.done()
}

fn companion(companion: &Companion) -> Value {
    match companion.strength {
        Strength::Hard => json!(companion.service.as_str()),
        Strength::Preferred(weight) => json!({ "service": companion.service.as_str(), "weight": weight }),
    }
}

fn changes(spec: &ServiceSpec, out: &mut Section) {
    if spec.canary.count > 0 {
        out.put("canary", spec.canary.count);
    }
    if spec.canary.promotion == Promotion::Automatic {
        out.put("auto_promote", true);
    }
    out.put("step_timeout", spec.update.step_timeout.map(print_duration)).put("surge", spec.update.surge);
    if spec.disconnect != Disconnect::default() {
        out.put("disconnect", disconnect(&spec.disconnect));
    }
    out.put("reschedule", spec.reschedule.as_ref().map(reschedule));
    match spec.rebalance {
        Rebalance::On => {}
        Rebalance::Off => {
            out.put("rebalance", "off");
        }
        Rebalance::OnJoin => {
            out.put("rebalance", "on-join");
        }
    }
}

fn disconnect(policy: &Disconnect) -> Value {
    let mut out = Section::default();
    out.put("lost_after", policy.lost_after.map(print_duration)).put("replace", policy.replace == Replace::WhenLost);
    out.put(
        "reconcile",
        match policy.reconcile {
            Reconcile::KeepReplacement => "keep_replacement",
            Reconcile::KeepOriginal => "keep_original",
            Reconcile::BestScore => "best_score",
            Reconcile::LongestRunning => "longest_running",
        },
    );
    out.done()
}

fn reschedule(policy: &Reschedule) -> Value {
    let mut out = Section::default();
    out.put("attempts", policy.attempts).put("interval", print_duration(policy.interval));
    out.put("delay", print_duration(policy.delay)).put("max_delay", print_duration(policy.max_delay));
    out.put(
        "delay_function",
        match policy.delay_function {
            DelayFunction::Constant => "constant",
            DelayFunction::Exponential => "exponential",
            DelayFunction::Fibonacci => "fibonacci",
        },
    );
    if policy.attempts.is_none() {
        out.put("unlimited", true);
    }
    out.done()
}
