//! The commands of the fixture `format-1`.
//!
//! Never changed: the fixture was written from these. A later format gets a file and a fixture of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv6Addr,
    sync::Arc,
};

use longshore_model::{
    Actor, AfterDrain, Attempt, Capacity, ClusterConfig, Command, DeploymentSpec, Generation, GroupKey, GroupPlan,
    MemberId, NamespaceName, Node, Placement, Plan, PlanItem, Reason, ReplicaState, Reservation, RuntimeCode,
    ServiceSpec, SlotIndex, SlotKey, StateIndex, Time, VolumeKey,
    access::{
        AccessCommand, AccessToken, Authority, JoinGrant, NodeMembership, NodeRole, Sealed, TokenRole, TokenScope,
    },
    command::{Observation, Quota},
    container::ContainerSpec,
    node::{Health, Intent, UseDegraded},
    plan::Wait,
    replica::{Detail, HeldVolume, HostPort},
    service::{Protocol, UpdatePolicy},
    volume::Sharing,
};
use longshore_store::replicated::{IdempotencyKey, Proposal};

const MIB: u64 = 1024 * 1024;

/// The idempotency key of the last one.
const KEY: &str = "asked-once";

pub(crate) fn commands() -> Vec<Proposal> {
    let by_ann = |command| Proposal {
        command,
        key: None,
        request: None,
        actor: Actor::Operator("ann".to_owned()),
        at: Time(1_700_000_000_000),
    };
    let mut all: Vec<Proposal> =
        setup().into_iter().chain(access()).chain(work()).chain(trouble()).map(by_ann).collect();
    all.push(keyed());
    all
}

/// The command with an idempotency key.
pub(crate) fn keyed() -> Proposal {
    let command = Command::PutSecret { namespace: "default".into(), name: "db-pass".into(), version: 2 };
    Proposal { key: Some(IdempotencyKey::new(KEY).unwrap()), ..Proposal::by_system(command, Time(9)) }
}

fn setup() -> Vec<Command> {
    let quota = Quota { replicas: Some(50), memory_bytes: Some(4096 * MIB), cpu_millis: None };
    vec![
        Command::Configure(ClusterConfig { default_memory_bytes: 64 * MIB, ..ClusterConfig::default() }),
        Command::Join(Box::new(node("a"))),
        Command::Join(Box::new(node("b"))),
        Command::Join(Box::new(node("c"))),
        Command::Label { node: "a".into(), labels: BTreeMap::from([("zone".to_owned(), "east".to_owned())]) },
        Command::SetUseDegraded { node: "b".into(), use_degraded: UseDegraded::Allowed },
        Command::SetQuota { namespace: "default".into(), quota },
        Command::PutSecret { namespace: "default".into(), name: "db-pass".into(), version: 1 },
    ]
}

fn access() -> Vec<Command> {
    let sealed = || Sealed { key: 1, bytes: vec![0, 127, 128, 255] };
    let seat = NodeMembership {
        member: MemberId(1),
        address: "10.0.0.1:7474".to_owned(),
        certificate: vec![48, 130],
        fingerprint: "f1".into(),
        key: "k1".into(),
        role: NodeRole::Server,
        token: None,
        token_digest: None,
        since: Time(1),
    };
    let token = AccessToken {
        name: "ci".to_owned(),
        digest: "d1".into(),
        role: TokenRole::Deploy,
        scope: TokenScope { namespace: Some("default".into()), deployment: Some("shop".into()) },
        expires_at: Some(Time(9_000_000)),
        since: Time(2),
    };
    let grant = JoinGrant { digest: "d2".into(), role: NodeRole::Worker, expires_at: Time(9_000_000) };
    let authority = Authority { certificate: vec![48, 131], key: sealed() };
    let (namespace, name) = ("default".into(), "api-key".into());
    let admit = AccessCommand::Admit {
        node: "b".into(),
        token: "t1".into(),
        digest: "d2".into(),
        address: "10.0.0.2:7474".to_owned(),
        certificate: vec![48, 132],
        fingerprint: "f2".into(),
        key: "k2".into(),
        at: Time(3),
    };
    let commands = [
        AccessCommand::Bootstrap { authority, node: "a".into(), membership: seat },
        AccessCommand::GrantJoin { id: "t1".into(), grant },
        admit,
        AccessCommand::IssueToken { id: "o1".into(), token },
        AccessCommand::StoreSecret {
            namespace,
            name,
            version: 1,
            contents: sealed(),
            deployment: None,
            by_operator: false,
        },
        AccessCommand::Relocate { node: "b".into(), address: "10.0.0.3:7474".to_owned() },
    ];
    commands.map(|command| Command::Access(Box::new(command))).into()
}

fn work() -> Vec<Command> {
    let (namespace, deployment) = (NamespaceName::default_namespace(), || "shop".into());
    let apply = |spec| Command::Apply {
        namespace: namespace.clone(),
        deployment: deployment(),
        spec: Box::new(spec),
        rerun: longshore_model::command::Rerun::IfChanged,
    };
    vec![
        apply(spec(2, "web:1")),
        Command::Commit(Box::new(placements())),
        seen(0, ReplicaState::Running, None),
        seen(1, ReplicaState::Failed, Some(RuntimeCode::Exited)),
        Command::Scale { group: group("web"), replicas: 3 },
        apply(spec(3, "web:2")),
        Command::Rollback { namespace: namespace.clone(), deployment: deployment(), to: None, at: Time(60_000) },
        Command::Restart { group: group("web"), at: Time(61_000) },
        Command::EvenOut,
    ]
}

fn trouble() -> Vec<Command> {
    let gone = || "gone".into();
    vec![
        Command::SetHealth { node: "b".into(), health: Health::Down, at: Time(70_000) },
        Command::ConfirmLost { node: "b".into(), at: Time(71_000) },
        Command::SetIntent { node: "a".into(), intent: Intent::Paused, at: Time(72_000) },
        Command::Drain { node: "c".into(), deadline: Some(Time(99_000)), then: AfterDrain::Keep, at: Time(73_000) },
        Command::Remove { namespace: NamespaceName::default_namespace(), deployment: gone() },
    ]
}

fn spec(replicas: u32, image: &str) -> DeploymentSpec {
    // What was the default when the fixture was written.
    let update = UpdatePolicy { parallelism: Some(1), ..UpdatePolicy::default() };
    let web = ServiceSpec { replicas, container: container(image), update: update.clone(), ..ServiceSpec::default() };
    let db = ServiceSpec { replicas: 1, container: container("db:1"), update, ..ServiceSpec::default() };
    let services = [("web".into(), Arc::new(web)), ("db".into(), Arc::new(db))];
    DeploymentSpec { services: services.into(), ..DeploymentSpec::default() }
}

fn container(image: &str) -> ContainerSpec {
    ContainerSpec { image: image.into(), ..ContainerSpec::default() }
}

fn group(service: &str) -> GroupKey {
    GroupKey { namespace: NamespaceName::default_namespace(), deployment: "shop".into(), service: service.into() }
}

fn placements() -> Plan {
    let data = VolumeKey { namespace: NamespaceName::default_namespace(), name: "shop_data".into() };
    let web = Reservation {
        memory_bytes: 128 * MIB,
        cpu_millis: 250,
        host_ports: vec![HostPort { protocol: Protocol::Tcp, port: 8080 }],
        ..Reservation::default()
    };
    let db = Reservation {
        volumes: vec![HeldVolume { key: data.clone(), sharing: Sharing::Exclusive }],
        ..Reservation::default()
    };
    let wait = Wait {
        slots: vec![SlotKey::Index(SlotIndex(2))],
        reason: Reason::NoCapacityMemory,
        details: BTreeMap::from([("nearest".to_owned(), Detail::Text("a".to_owned()))]),
    };
    let web_items = vec![
        place(0, "a", 1, vec![]),
        place(1, "b", 2, vec![]),
        PlanItem::Open(SlotKey::Index(SlotIndex(2))),
        PlanItem::Wait(wait),
    ];
    Plan {
        made_from: StateIndex(9),
        made_at: Time(1_000),
        groups: vec![
            GroupPlan { group: group("web"), reservation: Arc::new(web), items: web_items },
            GroupPlan { group: group("db"), reservation: Arc::new(db), items: vec![place(0, "c", 3, vec![data])] },
        ],
        wake_at: Some(Time(31_000)),
        ..Plan::default()
    }
}

fn place(index: u32, node: &str, address: u16, new_volumes: Vec<VolumeKey>) -> PlanItem {
    PlanItem::Place(Placement {
        key: SlotKey::Index(SlotIndex(index)).generation(Generation(1)),
        node: node.into(),
        address: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, address),
        new_volumes,
        devices: longshore_model::device::TakenDevices::default(),
        reservation: None,
        moved: None,
    })
}

fn seen(index: u32, state: ReplicaState, code: Option<RuntimeCode>) -> Command {
    Command::Observe(Observation {
        key: group("web").replica(&SlotKey::Index(SlotIndex(index)), Generation(1)),
        attempt: Attempt(0),
        placed_at: None,
        state,
        code,
        details: BTreeMap::from([("exit_code".to_owned(), Detail::Number(1))]),
        at: Time(5_000),
    })
}

fn node(name: &str) -> Node {
    Node {
        engine_labels: BTreeMap::from([("os".to_owned(), "debian".to_owned())]),
        plugins: BTreeSet::from(["volume/nfs".into()]),
        capacity: Capacity { memory_bytes: 2048 * MIB, ..Capacity::default() },
        ..Node::new(name)
    }
}
