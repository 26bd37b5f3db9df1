//! `longshore policy`: what the manifests of a namespace may ask of the machines.
//!
//! Owns: its options and tables. Must not touch: whether a manifest is allowed; the daemon decides that.

use std::collections::BTreeMap;

use clap::Subcommand;
use longshore_api::{OtherRules, Policy, PolicyRequest, PolicyTest};

use crate::{
    daemon_client::{ConnectionArgs, NamespaceArgs, change, query, with_client},
    exit::Exit,
    input,
    manifest::{self, ManifestArgs},
    output::{print, table},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what the manifests of a namespace may ask.
    #[command(after_help = "Examples:\n  longshore policy show team")]
    Show {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The namespace.
        #[arg(default_value = "default")]
        namespace: String,
    },
    /// Set rules of a namespace's policy; the others stay.
    ///
    /// Values are separated by commas; `yes` or `*` allows everything of a rule, `no` nothing. A change stops nothing that
    /// runs: it counts from the next apply.
    #[command(
        after_help = "Examples:\n  longshore policy set team images=ghcr.io/team,nginx host_ports=30000-30100\n  \
                      longshore policy set team --only images=yes bind_mounts=/srv/team exec_users=team\n  \
                      longshore policy set team --allow-others"
    )]
    Set {
        #[command(flatten)]
        connection: ConnectionArgs,
        /// The namespace.
        namespace: String,
        /// Rules to set.
        #[arg(value_name = "RULE=VALUES", value_parser = input::pair)]
        rules: Vec<(String, String)>,
        /// Deny every rule that is not named.
        #[arg(long, conflicts_with = "allow_others")]
        only: bool,
        /// Allow every rule that is not named, but root for plain processes.
        #[arg(long)]
        allow_others: bool,
    },
    /// Say what an apply of a manifest would be refused for by the policy. Nothing is changed.
    #[command(after_help = "Examples:\n  longshore policy test -n team -f compose.yaml")]
    Test(Box<TestArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    #[command(flatten)]
    scope: NamespaceArgs,
}

pub(crate) fn run(command: Command) -> anyhow::Result<Exit> {
    match command {
        Command::Show { connection, namespace } => {
            query(&connection, async |client| client.policy(&namespace).await, policy_table)
        }
        Command::Set { connection, namespace, rules, only, allow_others } => {
            if rules.is_empty() && !only && !allow_others {
                print::stderr("error: no rule is given\n\nhint: `longshore policy show` lists the rules");
                return Ok(Exit::BadInput);
            }
            let others = match (only, allow_others) {
                (true, _) => OtherRules::Deny,
                (false, true) => OtherRules::Allow,
                (false, false) => OtherRules::Keep,
            };
            let request = PolicyRequest { rules: rules.into_iter().map(values).collect(), others };
            change(&connection, async |client| client.set_policy(&namespace, &request).await)
        }
        Command::Test(args) => test(*args),
    }
}

fn values((rule, values): (String, String)) -> (String, Vec<String>) {
    let values = values.split(',').map(str::trim).filter(|value| !value.is_empty());
    (rule, values.map(str::to_owned).collect())
}

fn test(TestArgs { manifest, scope }: TestArgs) -> anyhow::Result<Exit> {
    let Some(parsed) = manifest::parse(manifest, scope.namespace())? else { return Ok(Exit::BadInput) };
    with_client(&scope.connection, async |client| {
        let tested = client.test_policy(&parsed.request).await?;
        let shown = scope.connection.print(&tested, test_table)?;
        Ok(if tested.denied.is_empty() { shown } else { Exit::BadInput })
    })
}

fn policy_table(policy: &Policy) -> String {
    let Policy { namespace, is_set, rules } = policy;
    let allowed = |values: &Vec<String>| if values.is_empty() { "nothing".to_owned() } else { values.join(", ") };
    let rows = rules.iter().map(|(rule, values)| vec![rule.clone(), allowed(values)]);
    let out = table::draw(&["RULE", "ALLOWED"], &rows.collect::<Vec<_>>());
    if *is_set {
        return out;
    }
    let who = "only an admin of the whole cluster may run plain processes as root";
    format!("{out}\nno policy is set: namespace `{namespace}` may ask everything; {who}\n")
}

fn test_table(tested: &PolicyTest) -> String {
    let PolicyTest { namespace, deployment, denied } = tested;
    if denied.is_empty() {
        return format!("the policy of namespace `{namespace}` allows {deployment}\n");
    }
    let rows = denied.iter().map(|demand| vec![demand.key.clone(), demand.value.clone(), demand.rule.clone()]);
    let out = table::draw(&["KEY", "ASKED", "RULE"], &rows.collect::<Vec<_>>());
    let mut remedy: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for demand in denied {
        remedy.entry(&demand.rule).or_default().push(&demand.value);
    }
    let rules = remedy.iter().map(|(rule, values)| format!("{rule}={}", values.join(",")));
    let rules = rules.collect::<Vec<_>>().join(" ");
    format!("{out}\nan admin may allow it: longshore policy set {namespace} {rules}\n")
}
