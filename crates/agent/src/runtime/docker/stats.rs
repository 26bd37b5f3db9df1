//! The resource usage of a container.
//!
//! Owns: reading the engine's one-shot statistics.

use bollard::{models::ContainerStatsResponse, query_parameters::StatsOptionsBuilder};
use futures_util::StreamExt;

use super::{Docker, SHORT, within};
use crate::runtime::{Handle, ResourceUsage, RuntimeError};

pub(super) async fn resource_usage(docker: &Docker, handle: &Handle) -> Result<ResourceUsage, RuntimeError> {
    let client = docker.connection.client().await?;
    let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
    let mut stats = std::pin::pin!(client.stats(&handle.0, Some(options)));
    let first = async { stats.next().await.transpose() };
    within(SHORT, first).await?.as_ref().and_then(of).ok_or(RuntimeError::NotFound)
}

fn of(stats: &ContainerStatsResponse) -> Option<ResourceUsage> {
    let cpu_nanos = stats.cpu_stats.as_ref()?.cpu_usage.as_ref()?.total_usage?;
    let memory = stats.memory_stats.as_ref()?;
    // Reclaimable page cache does not count as used; cgroup v1 and v2 name it differently.
    let details = memory.stats.as_ref();
    let cache = ["total_inactive_file", "inactive_file"].iter().find_map(|name| details?.get(*name).copied());
    Some(ResourceUsage {
        cpu_micros: cpu_nanos / 1000,
        memory_bytes: memory.usage?.saturating_sub(cache.unwrap_or_default()),
    })
}
