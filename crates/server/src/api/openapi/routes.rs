//! Every route: role, summary, query, request and response schema.

/// One route.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) who: &'static str,
    pub(crate) does: &'static str,
    pub(crate) query: &'static [&'static str],
    /// Schema of the request body; empty for none.
    pub(crate) takes: &'static str,
    /// Schema of the answer; empty for plain text.
    pub(crate) gives: &'static str,
}

const ANYONE: &str = "anyone";
const IN_SCOPE: &str = "any role, within the scope of the token";
const VIEW: &str = "any role, without a scope";
const DEPLOY: &str = "the role `deploy`, within the scope of the token";
const ADMIN: &str = "the role `admin`, without a scope";

const NAMESPACE: &[&str] = &["namespace"];

const fn get(path: &'static str, who: &'static str, does: &'static str, gives: &'static str) -> Route {
    Route { method: "GET", path, who, does, query: &[], takes: "", gives }
}

const fn change(method: &'static str, path: &'static str, who: &'static str, does: &'static str) -> Route {
    Route { method, path, who, does, query: &[], takes: "", gives: "Changed" }
}

impl Route {
    const fn query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn takes(self, takes: &'static str) -> Self {
        Self { takes, ..self }
    }

    const fn gives(self, gives: &'static str) -> Self {
        Self { gives, ..self }
    }
}

pub(crate) const ROUTES: &[Route] = &[
    get("/healthz", ANYONE, "Says that the daemon is alive", ""),
    get("/readyz", ANYONE, "Says whether it can answer with the newest state", ""),
    get("/metrics", VIEW, "Metrics in the text format of Prometheus", ""),
    get("/v1/openapi.json", IN_SCOPE, "This description", "anything"),
    get("/v1/deployments", IN_SCOPE, "All deployments", "[Deployment]"),
    get("/v1/deployments/{name}", IN_SCOPE, "One deployment", "Deployment").query(NAMESPACE),
    get("/v1/status", IN_SCOPE, "Deployments and their replicas, from one state", "Status")
        .query(&["namespace", "deployment"]),
    get("/v1/replicas", IN_SCOPE, "All replicas", "[Replica]"),
    get(
        "/v1/replicas/{replica}/history",
        IN_SCOPE,
        "The history of a replica, as far back as the server remembers",
        "[HistoryEntry]",
    ),
    get("/v1/pending", IN_SCOPE, "Replicas without a node, and why", "[Pending]"),
    get("/v1/why/{replica}", IN_SCOPE, "Why a replica is on its node, or has none", "Why"),
    get("/v1/logs", IN_SCOPE, "Logs of replicas: one LogEntry per line, empty lines as keepalives", "").query(&[
        "of",
        "namespace",
        "follow",
        "since_ms",
        "tail",
    ]),
    get("/v1/whoami", IN_SCOPE, "The caller's name, role and scope", "WhoAmI"),
    get("/v1/caller", IN_SCOPE, "The older path of `/v1/whoami`", "WhoAmI"),
    change("POST", "/v1/login-links", IN_SCOPE, "Creates a link that logs in to the dashboard once").gives("LoginLink"),
    get("/v1/namespaces/{name}/policy", IN_SCOPE, "What the manifests of a namespace may ask", "Policy"),
    change("POST", "/v1/policy-test", DEPLOY, "Says what an apply would be refused for by the policy")
        .takes("ApplyRequest")
        .gives("PolicyTest"),
    change("POST", "/v1/plan", DEPLOY, "A dry run of applying a manifest").takes("ApplyRequest").gives("ManifestPlan"),
    change("POST", "/v1/replicas/{replica}/exec", DEPLOY, "Runs a command in a replica: 101, then frames both ways")
        .takes("ExecRequest")
        .gives(""),
    change("POST", "/v1/deployments", DEPLOY, "Applies a manifest").takes("ApplyRequest").gives("AppliedManifest"),
    change("DELETE", "/v1/deployments/{name}", DEPLOY, "Removes a deployment").query(NAMESPACE),
    change("POST", "/v1/deployments/{name}/pull", DEPLOY, "Resolves the images again and rolls what changed")
        .query(NAMESPACE)
        .gives("AppliedManifest"),
    change("POST", "/v1/deployments/{name}/rollback", DEPLOY, "Rolls back to an older revision")
        .query(NAMESPACE)
        .takes("RollbackRequest"),
    change("POST", "/v1/deployments/{name}/stop", DEPLOY, "Stops every replica; revisions and volumes stay")
        .query(NAMESPACE),
    change("POST", "/v1/deployments/{name}/start", DEPLOY, "Starts a stopped deployment").query(NAMESPACE),
    change(
        "POST",
        "/v1/deployments/{name}/{word}",
        DEPLOY,
        "Takes one of the actions `pause`, `resume` and `promote` on a rollout",
    )
    .query(NAMESPACE),
    change(
        "POST",
        "/v1/deployments/{name}/services/{service}/scale",
        DEPLOY,
        "Sets the number of replicas of a service",
    )
    .query(NAMESPACE)
    .takes("ScaleRequest"),
    change("POST", "/v1/deployments/{name}/services/{service}/restart", DEPLOY, "Replaces every replica of a service")
        .query(NAMESPACE),
    change(
        "POST",
        "/v1/deployments/{name}/services/{service}/run",
        DEPLOY,
        "Runs a command once, as a job made from a service",
    )
    .query(NAMESPACE)
    .takes("RunRequest")
    .gives("OneOffJob"),
    change("DELETE", "/v1/volumes/{name}", DEPLOY, "Deletes a volume that nothing uses, with its data")
        .query(NAMESPACE),
    get("/v1/nodes", VIEW, "All nodes", "[Node]"),
    get("/v1/nodes/{name}", VIEW, "One node", "Node"),
    change("POST", "/v1/whatif", VIEW, "A dry run under assumptions").takes("WhatIfRequest").gives("WhatIf"),
    get("/v1/audit", VIEW, "The audit log", "[AuditEntry]").query(&["after", "limit"]),
    get("/v1/events", VIEW, "Changes as server-sent events: `change` with a Change, `resync` to start over", "")
        .query(&["after"]),
    get("/v1/cluster", VIEW, "Status of the control plane", "ClusterStatus"),
    get("/v1/cluster/settings", VIEW, "Every setting of the cluster by name", "{string}"),
    get("/v1/secrets", VIEW, "All secrets, without their contents", "[SecretRow]"),
    get("/v1/namespaces", VIEW, "All namespaces with their requested resources and quotas", "[NamespaceRow]"),
    get("/v1/volumes", VIEW, "All volumes, and the node of their data", "[VolumeRow]"),
    get("/v1/networks", VIEW, "All networks that services are on", "[NetworkRow]"),
    get(
        "/v1/deployments/{name}/services/{service}/network",
        VIEW,
        "How a service is reached: its address, its replicas and its ports",
        "ServiceNetwork",
    )
    .query(NAMESPACE),
    get("/v1/rebalance", VIEW, "The moves that evening out would make", "[EvenOutMove]"),
    change("DELETE", "/v1/nodes/{name}", ADMIN, "Removes a node from the cluster").query(&["how"]),
    change("POST", "/v1/nodes/{name}/drain", ADMIN, "Drains a node").takes("DrainRequest"),
    change("POST", "/v1/nodes/{name}/labels", ADMIN, "Labels a node").takes("LabelRequest"),
    change("POST", "/v1/nodes/{name}/attributes", ADMIN, "Declares attributes of a node; absent ones stay")
        .takes("NodeAttributesRequest"),
    change(
        "POST",
        "/v1/nodes/{name}/{word}",
        ADMIN,
        "Takes one of the actions `activate`, `pause`, `lost`, `degrade`, `recover`, `override` and `withdraw-override`",
    ),
    change("POST", "/v1/join-tokens", ADMIN, "Creates a token with which one node can join")
        .takes("JoinTokenRequest")
        .gives("NewToken"),
    get("/v1/tokens", ADMIN, "All operator tokens", "[TokenRow]"),
    change("POST", "/v1/tokens", ADMIN, "Creates an operator token").takes("TokenRequest").gives("NewToken"),
    change("DELETE", "/v1/tokens/{id}", ADMIN, "Revokes a token, everywhere at once"),
    change("PUT", "/v1/secrets/{name}", ADMIN, "Stores a version of a secret")
        .query(NAMESPACE)
        .takes("SecretRequest")
        .gives("SecretStored"),
    change("DELETE", "/v1/secrets/{name}", ADMIN, "Removes a secret that nothing needs").query(NAMESPACE),
    change("POST", "/v1/cluster/rotate-key", ADMIN, "Rotates the cluster's key").gives("KeyRotated"),
    change("POST", "/v1/cluster/settings", ADMIN, "Changes some of the cluster's settings").takes("{string}"),
    change("PUT", "/v1/namespaces/{name}/quota", ADMIN, "Sets the whole quota of a namespace").takes("Quota"),
    change("PUT", "/v1/namespaces/{name}/policy", ADMIN, "Sets rules of a namespace's policy").takes("PolicyRequest"),
    change("POST", "/v1/rebalance", ADMIN, "Spreads replicas more evenly, one move at a time"),
    get("/v1/backup", ADMIN, "A backup: the replicated state and the keys", ""),
];
