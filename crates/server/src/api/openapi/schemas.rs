//! Every schema: its fields and their types.
//!
//! `[type]` is a list, `{type}` a map with text keys, and a question mark marks an optional field.

pub(crate) const SCHEMAS: &[(&str, &str)] = &[
    ("Envelope", "code: string, message: string, details: {anything}"),
    ("Changed", "one of yes no"),
    (
        "Deployment",
        "namespace: string, name: string, status: string, reasons: [string], revision: integer, revisions: [integer], \
         rollout: Rollout?, services: [Service], one_off_of: string?",
    ),
    ("Status", "deployments: [Deployment], replicas: [Replica], conditions: [PortCondition]?"),
    ("PortCondition", "node: string, code: string, message: string, port: integer, protocol: string"),
    ("Port", "target: integer, published: integer?, protocol: string, mode: string, host_ip: string?"),
    (
        "Rollout",
        "number: integer, from: integer, to: integer, state: string, waits_for: Awaited?, total_steps: integer, \
         current_step: integer, failed_steps: integer, failure_reason: string?, failed_replica: string?, \
         failure: FailedReplica?",
    ),
    ("FailedReplica", "generation: integer, node: string?, state: string, code: string?, details: {anything}"),
    ("Awaited", "replica: string, code: string"),
    (
        "Service",
        "name: string, image: string, strategy: string, driver: string, desired: integer, wanted: integer, \
         running: integer, completed: integer, ports: [Port]",
    ),
    (
        "ApplyRequest",
        "files: [string]?, texts: {string}?, bytes_base64: {string}?, overlay: string?, working_directory: string?, \
         project_directory: string?, environment: {string}?, env_files: [string]?, profiles: [string]?, name: string?, namespace: string?, \
         compose_volumes: string?, pull: string?, rerun_ended: boolean?",
    ),
    (
        "AppliedManifest",
        "namespace: string, deployment: string, revision: integer, changed: Changed, index: integer, warnings: [string]",
    ),
    (
        "RunRequest",
        "command: [string]?, entrypoint: [string]?, environment: [string]?, user: string?, working_dir: string?, \
         terminal: boolean?, attached: boolean?, no_dependencies: boolean?",
    ),
    ("OneOffJob", "namespace: string, deployment: string, replica: string"),
    ("ScaleRequest", "replicas: integer"),
    ("RollbackRequest", "to: integer?"),
    (
        "Replica",
        "id: string, namespace: string, deployment: string, service: string, node: string?, state: string, code: string?, \
         details: {anything}, generation: integer, attempt: integer, revision: integer, restarts: integer, \
         since_ms: integer?, address: string?, returns_at_ms: integer?, ended: boolean?",
    ),
    (
        "HistoryEntry",
        "index: integer, at_ms: integer?, kind: string, namespace: string?, deployment: string?, service: string?, \
         replica: string?, node: string?, generation: integer?, attempt: integer?, state: string?, code: string?",
    ),
    ("LogEntry", "replica: string, generation: integer, node: string, at_ms: integer, source: string, text: string"),
    (
        "ExecRequest",
        "command: [string], environment: [string]?, user: string?, working_dir: string?, terminal: TerminalSize?, \
         attach: boolean?",
    ),
    ("TerminalSize", "columns: integer, rows: integer"),
    (
        "Pending",
        "namespace: string, deployment: string, service: string, count: integer, reason: string, refused: {integer}, \
         explain: string",
    ),
    (
        "Why",
        "answer: string, replica: string, index: integer?, placed_at_ms: integer?, node: string?, strategy: string?, nodes: integer?, candidates: integer?, \
         refused: {integer}?, best: [Candidate]?, pending: Pending?, state: string?, code: string?, details: {anything}?, \
         attempt: integer?, restarts: integer?, generation: integer?, explain: string?",
    ),
    ("Candidate", "node: string, keys: [[anything]]"),
    (
        "ManifestPlan",
        "namespace: string, deployment: string, index: integer, changed: Changed, revision: integer, \
         services: [ServicePlan], shared: [string], elsewhere: [Move], rest: string, warnings: [string]",
    ),
    (
        "ServicePlan",
        "name: string, change: string, fields: [string], recreated_by: [string], replicas: [Move], pending: [Pending]",
    ),
    ("Move", "replica: string, from: string?, to: string?, generation: integer?"),
    ("WhatIfRequest", "down: [string]?, drain: [string]?, add: [NewNode]?, scale: [NewCount]?, apply: ApplyRequest?"),
    ("NewNode", "name: string, cpu_millis: integer?, memory_bytes: integer?, labels: {string}?"),
    ("NewCount", "namespace: string?, deployment: string, service: string, replicas: integer"),
    (
        "WhatIf",
        "index: integer, took_micros: integer, moves: [Move], pending: [Pending], nodes: [Headroom], \
         evacuation_paused: boolean, rest: string",
    ),
    (
        "Headroom",
        "node: string, usable: boolean, memory_bytes: integer, memory_used_before_bytes: integer, \
         memory_used_bytes: integer, replicas_before: integer, replicas: integer",
    ),
    (
        "Node",
        "name: string, number: integer, intent: string, health: string, health_since_ms: integer, use_degraded: boolean, \
         role: string, pool: string, datacenter: string, labels: {string}, os: string, arch: string, drivers: [string], cpu_millis: integer, \
         memory_bytes: integer, memory_used_bytes: integer, disk_bytes: integer?, \
         reserved_cpu_millis: integer, reserved_memory_bytes: integer, reserved_disk_bytes: integer?, \
         devices: {integer}, device_groups: [DeviceGroup], blocks: [string], network: NodeNetwork?, addresses: integer?, replicas: integer, load: Load?, \
         drain: Drain?, conditions: [NodeCondition]",
    ),
    ("NodeCondition", "code: string, message: string, port: integer?, protocol: string?"),
    ("NetworkRow", "name: string, internal: boolean, ipv6: boolean, services: [string], replicas: integer"),
    (
        "ServiceNetwork",
        "namespace: string, deployment: string, service: string, vips: [string], endpoint_mode: string, networks: [string], \
         ports: [string], endpoints: [ServiceEndpoint]",
    ),
    ("ServiceEndpoint", "replica: string, generation: integer, node: string, addresses: [string], serves: boolean"),
    (
        "NodeNetwork",
        "mesh: string?, mesh_port: integer?, public_key: string?, mtu: integer?, gives_addresses: boolean, \
         reaches_peers: boolean",
    ),
    ("Load", "cpu_millionths: integer, memory_millionths: integer, disk: Disk?, at_ms: integer"),
    ("Disk", "total_bytes: integer, free_bytes: integer, short: boolean"),
    ("Drain", "outcome: string, then: string, left: [UndrainedReplica]"),
    ("UndrainedReplica", "replica: string, why: string"),
    ("DrainRequest", "deadline_secs: integer?"),
    ("LabelRequest", "labels: {string}"),
    ("DeviceGroup", "kind: string, vendor: string, model: string, count: integer, attributes: {string}"),
    (
        "NodeAttributesRequest",
        "pool: string?, datacenter: string?, reserved_cpu_millis: integer?, reserved_memory_bytes: integer?, \
         reserved_disk_bytes: integer?, devices: [DeviceGroup]?, addresses: integer?",
    ),
    (
        "AuditEntry",
        "number: integer, index: integer, at_ms: integer, actor: string, action: string, subject: string, outcome: string, \
         code: string?",
    ),
    ("Change", "index: integer, events: [Event]"),
    (
        "Event",
        "kind: string, namespace: string?, deployment: string?, service: string?, replica: string?, node: string?, \
         generation: integer?, attempt: integer?, state: string?, code: string?",
    ),
    (
        "ClusterStatus",
        "cluster: string, this_node: string, leading_here: boolean, term: integer, index: integer, log_entry: integer, \
         members: [MemberRow], has_quorum: boolean, voters: integer, reachable_voters: integer, survives_losses: integer, \
         namespaces_without_policy: [string]?",
    ),
    (
        "MemberRow",
        "node: string, member: integer, address: string, role: string, part: string, keeps_log: boolean, votes: boolean, leads: boolean, \
         reachable: boolean, lag: integer?, version: string?",
    ),
    ("SecretRequest", "contents: string?, contents_base64: string?, deployment: string?"),
    ("SecretStored", "version: integer"),
    ("SecretRow", "namespace: string, name: string, version: integer, deployment: string?, used_by: [string]"),
    ("NamespaceRow", "name: string, deployments: integer, desired: Amounts, quota: Quota"),
    ("Amounts", "replicas: integer, cpu_millis: integer, memory_bytes: integer"),
    ("Quota", "replicas: integer?, cpu_millis: integer?, memory_bytes: integer?"),
    (
        "VolumeRow",
        "namespace: string, name: string, deployment: string, node: string, engine_name: string, used_by: [string]",
    ),
    ("Policy", "namespace: string, is_set: boolean, rules: {[string]}"),
    ("PolicyRequest", "rules: {[string]}?, others: string?"),
    ("PolicyTest", "namespace: string, deployment: string, denied: [DeniedDemand]"),
    ("DeniedDemand", "key: string, value: string, rule: string, hint: string"),
    ("EvenOutMove", "namespace: string, replica: string, from: string, to: string"),
    ("KeyRotated", "key: integer"),
    ("JoinTokenRequest", "worker: boolean?, valid_secs: integer?"),
    ("TokenRequest", "name: string, role: string, namespace: string?, deployment: string?, valid_secs: integer?"),
    ("LoginLink", "path: string, url: string?"),
    ("WhoAmI", "name: string, role: string, namespace: string?, deployment: string?"),
    ("NewToken", "id: string, token: string"),
    (
        "TokenRow",
        "id: string, name: string, role: string, namespace: string?, deployment: string?, expires_ms: integer?",
    ),
];
