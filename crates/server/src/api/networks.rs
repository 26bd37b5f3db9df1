//! Networks and the addresses of services, computed from the same index that machines are told from.
//!
//! Owns: the rows of these answers. Must not touch: which machine is told what.

use std::{collections::BTreeMap, net::Ipv6Addr, sync::Arc};

use axum::{Json, extract::State as AxumState};
use longshore_api::{NetworkRow, ObjectKind, ServiceEndpoint, ServiceNetwork};
use longshore_model::{AddressPlan, service::EndpointMode};
use longshore_network::NetworkService;

use crate::{
    api::{
        ApiError, ApiResult, ApiState,
        deployments::NamespaceQuery,
        extract::{PathParams, QueryParams},
    },
    control::network_feed::NetworkIndex,
};

/// All networks that some service is on.
pub(crate) async fn list(AxumState(api): AxumState<Arc<ApiState>>) -> ApiResult<Vec<NetworkRow>> {
    let state = api.store()?.read().await?.state;
    let index = NetworkIndex::open(&state, &api.ctx.record().cluster);
    let mut rows: BTreeMap<String, NetworkRow> = BTreeMap::new();
    for service in index.services() {
        for scope in &service.scopes {
            let name = scope.name.to_string();
            let row = rows.entry(name.clone()).or_insert_with(|| NetworkRow {
                name,
                internal: scope.internal,
                ipv6: scope.ipv6,
                services: Vec::new(),
                replicas: 0,
            });
            row.services.push(format!("{}/{}", service.group.deployment, service.group.service));
            row.replicas += service.replicas.len() as u64;
        }
    }
    Ok(Json(rows.into_values().collect()))
}

/// How one service is reached.
pub(crate) async fn service(
    AxumState(api): AxumState<Arc<ApiState>>,
    PathParams((deployment, service)): PathParams<(String, String)>,
    QueryParams(scope): QueryParams<NamespaceQuery>,
) -> ApiResult<ServiceNetwork> {
    let state = api.store()?.read().await?.state;
    let key = scope.group(&deployment, &service);
    let named = format!("{deployment}/{service}");
    state.group(&key).ok_or_else(|| ApiError::not_found(&ObjectKind::Service, &named))?;
    let index = NetworkIndex::open(&state, &api.ctx.record().cluster);
    let plan = state.config().address_plan();
    let known = index.service(&key).cloned().unwrap_or_else(|| NetworkService::new(key));
    Ok(Json(row(&known, plan)))
}

fn row(service: &NetworkService, plan: AddressPlan) -> ServiceNetwork {
    let has_ipv6 = service.scopes.iter().any(|scope| scope.ipv6);
    let number = service.vip.filter(|_| service.endpoint_mode == EndpointMode::Vip);
    let ipv4 = number.and_then(|number| plan.vip_ipv4(number)).map(|ip| ip.to_string());
    let ipv6 = number.filter(|_| has_ipv6).map(|number| plan.vip_ipv6(number).to_string());
    let endpoint_mode = match service.endpoint_mode {
        EndpointMode::Vip => "vip",
        EndpointMode::Dnsrr => "dnsrr",
    };
    let endpoints = service.replicas.iter().map(|replica| ServiceEndpoint {
        replica: replica.id.clone(),
        generation: replica.generation.0,
        node: replica.node.to_string(),
        addresses: addresses(replica.address, plan),
        serves: replica.serves,
    });
    ServiceNetwork {
        namespace: service.group.namespace.to_string(),
        deployment: service.group.deployment.to_string(),
        service: service.group.service.to_string(),
        vips: ipv4.into_iter().chain(ipv6).collect(),
        endpoint_mode: endpoint_mode.to_owned(),
        networks: service.scopes.iter().map(|scope| scope.name.to_string()).collect(),
        ports: service.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol.as_str())).collect(),
        endpoints: endpoints.collect(),
    }
}

fn addresses(ipv6: Ipv6Addr, plan: AddressPlan) -> Vec<String> {
    let ipv4 = plan.ipv4_of(ipv6).map(|ip| ip.to_string());
    ipv4.into_iter().chain([ipv6.to_string()]).collect()
}
