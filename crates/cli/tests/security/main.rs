//! Real daemons under unauthenticated, unauthorised and malformed requests: each is refused with a code, learns
//! nothing, and disturbs nobody else.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

mod exhaustion;
mod http_hardening;
mod idempotency;
mod logs_exec;
mod node_identity;
mod openapi_conformance;
mod rate_limits;
mod raw_http;
mod secret_leaks;
mod secrets;
mod tenant_attacks;
#[path = "../support/test_cluster.rs"]
#[expect(dead_code, reason = "other test binaries use the rest")]
mod test_cluster;
mod tokens;
