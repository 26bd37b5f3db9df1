//! Every route: who may, what it does, takes and gives.

/// One way to ask.
pub(super) struct Route {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) who: &'static str,
    pub(super) does: &'static str,
    pub(super) query: &'static [&'static str],
    /// The shape of the body; none where it is empty.
    pub(super) takes: &'static str,
    /// The shape of the answer; text where it is empty.
    pub(super) gives: &'static str,
}

const ANYBODY: &str = "anybody";
const IN_SCOPE: &str = "any role, for as much as the token is for";
const VIEW: &str = "any role, everywhere";
const DEPLOY: &str = "the role `deploy`, for what the token is for";
const ADMIN: &str = "the role `admin`, everywhere";

const NAMESPACE: &[&str] = &["namespace"];

const fn get(path: &'static str, who: &'static str, does: &'static str, gives: &'static str) -> Route {
    Route { method: "GET", path, who, does, query: &[], takes: "", gives }
}

const fn tell(method: &'static str, path: &'static str, who: &'static str, does: &'static str) -> Route {
    Route { method, path, who, does, query: &[], takes: "", gives: "Changed" }
}

impl Route {
    const fn asked(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn takes(self, takes: &'static str) -> Self {
        Self { takes, ..self }
    }

    const fn gives(self, gives: &'static str) -> Self {
        Self { gives, ..self }
    }
}

pub(super) const ROUTES: &[Route] = &[
    get("/healthz", ANYBODY, "Says that the daemon lives", ""),
    get("/readyz", ANYBODY, "Says whether it can answer with the newest state", ""),
    get("/metrics", VIEW, "Figures in the text format of Prometheus", ""),
    get("/v1/openapi.json", IN_SCOPE, "This description", "anything"),
    get("/v1/deployments", IN_SCOPE, "All deployments", "[Deployment]"),
    get("/v1/deployments/{name}", IN_SCOPE, "One deployment", "Deployment").asked(NAMESPACE),
    get("/v1/status", IN_SCOPE, "Deployments and their replicas, as they were at one moment", "Status")
        .asked(&["namespace", "deployment"]),
    get("/v1/replicas", IN_SCOPE, "All replicas", "[Replica]"),
    get(
        "/v1/replicas/{replica}/history",
        IN_SCOPE,
        "What happened to a replica, as far back as remembered",
        "[HistoryEntry]",
    ),
    get("/v1/pending", IN_SCOPE, "What has no node, and why", "[Pending]"),
    get("/v1/why/{replica}", IN_SCOPE, "Why a replica is where it is, or nowhere", "Why"),
    get("/v1/logs", IN_SCOPE, "What replicas write: a LogEntry a line, empty lines as signs of life", "").asked(&[
        "of",
        "namespace",
        "follow",
        "since_ms",
        "tail",
    ]),
    get("/v1/caller", IN_SCOPE, "Who asks, what they may do, and where", "WhoAsks"),
    tell("POST", "/v1/login-links", IN_SCOPE, "Makes a link that logs in to the dashboard, once").gives("LoginLink"),
    tell("POST", "/v1/plan", DEPLOY, "What applying a manifest would do").takes("ApplyRequest").gives("ManifestPlan"),
    tell("POST", "/v1/replicas/{replica}/exec", DEPLOY, "Runs a command beside a replica: 101, then frames both ways")
        .takes("ExecRequest")
        .gives(""),
    tell("POST", "/v1/deployments", DEPLOY, "Applies a manifest").takes("ApplyRequest").gives("AppliedManifest"),
    tell("DELETE", "/v1/deployments/{name}", DEPLOY, "Removes a deployment").asked(NAMESPACE),
    tell("POST", "/v1/deployments/{name}/rollback", DEPLOY, "Puts an older manifest in force")
        .asked(NAMESPACE)
        .takes("RollbackRequest"),
    tell("POST", "/v1/deployments/{name}/{word}", DEPLOY, "Says `pause`, `resume` or `promote` to a rollout")
        .asked(NAMESPACE),
    tell("POST", "/v1/deployments/{name}/services/{service}/scale", DEPLOY, "Sets how many replicas a service has")
        .asked(NAMESPACE)
        .takes("ScaleRequest"),
    tell("POST", "/v1/deployments/{name}/services/{service}/restart", DEPLOY, "Replaces every replica of a service")
        .asked(NAMESPACE),
    get("/v1/nodes", VIEW, "All nodes", "[Node]"),
    get("/v1/nodes/{name}", VIEW, "One node", "Node"),
    tell("POST", "/v1/whatif", VIEW, "What would become of the cluster").takes("WhatIfRequest").gives("WhatIf"),
    get("/v1/audit", VIEW, "Who did what", "[AuditEntry]").asked(&["after", "most"]),
    get("/v1/events", VIEW, "Changes as server-sent events: `change` with a Change, `resync` to start over", "")
        .asked(&["after"]),
    get("/v1/cluster", VIEW, "Who makes up the control plane", "ClusterStatus"),
    get("/v1/cluster/settings", VIEW, "Every setting of the cluster by its name", "{string}"),
    get("/v1/secrets", VIEW, "All secrets, never what is in them", "[SecretRow]"),
    get("/v1/namespaces", VIEW, "All namespaces: what is asked for in them, and their ceilings", "[NamespaceRow]"),
    get("/v1/volumes", VIEW, "All volumes, and where their data is", "[VolumeRow]"),
    get("/v1/rebalance", VIEW, "The moves that evening out would make", "[EvenOutMove]"),
    tell("DELETE", "/v1/nodes/{name}", ADMIN, "Takes a node out of the cluster").asked(&["how"]),
    tell("POST", "/v1/nodes/{name}/drain", ADMIN, "Empties a node").takes("DrainRequest"),
    tell("POST", "/v1/nodes/{name}/labels", ADMIN, "Labels a node").takes("LabelRequest"),
    tell("POST", "/v1/nodes/{name}/{word}", ADMIN, "Says `activate`, `pause` or `lost` of a node"),
    tell("POST", "/v1/join-tokens", ADMIN, "Makes a token that lets one node in")
        .takes("JoinTokenRequest")
        .gives("NewToken"),
    get("/v1/tokens", ADMIN, "All tokens of operators", "[TokenRow]"),
    tell("POST", "/v1/tokens", ADMIN, "Makes a token for an operator").takes("TokenRequest").gives("NewToken"),
    tell("DELETE", "/v1/tokens/{id}", ADMIN, "Revokes a token, everywhere at once"),
    tell("PUT", "/v1/secrets/{name}", ADMIN, "Stores a version of a secret")
        .asked(NAMESPACE)
        .takes("SecretRequest")
        .gives("SecretStored"),
    tell("DELETE", "/v1/secrets/{name}", ADMIN, "Removes a secret that nothing needs").asked(NAMESPACE),
    tell("POST", "/v1/cluster/rotate-key", ADMIN, "Has another of the cluster's keys seal").gives("KeyRotated"),
    tell("POST", "/v1/cluster/settings", ADMIN, "Changes some of the cluster's settings").takes("{string}"),
    tell("PUT", "/v1/namespaces/{name}/quota", ADMIN, "Sets all ceilings of a namespace").takes("Quota"),
    tell("POST", "/v1/rebalance", ADMIN, "Spreads replicas more evenly, one move at a time"),
    get("/v1/backup", ADMIN, "Everything the cluster goes on with, keys included", ""),
];
