//! What a container uses.
//!
//! Owns: reading the engine's one-shot statistics.

use bollard::{models::ContainerStatsResponse, query_parameters::StatsOptionsBuilder};
use futures_util::StreamExt;

use super::{Docker, SHORT, within};
use crate::runtime::{Handle, RuntimeError, Spent};

pub(super) async fn spent(docker: &Docker, handle: &Handle) -> Result<Spent, RuntimeError> {
    let client = docker.client().await?;
    let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
    let mut stats = std::pin::pin!(client.stats(&handle.0, Some(options)));
    let first = async { stats.next().await.transpose() };
    within(SHORT, first).await?.as_ref().and_then(of).ok_or(RuntimeError::Gone)
}

fn of(stats: &ContainerStatsResponse) -> Option<Spent> {
    let cpu_nanos = stats.cpu_stats.as_ref()?.cpu_usage.as_ref()?.total_usage?;
    let memory = stats.memory_stats.as_ref()?;
    // Cache the kernel gives back when asked is not use; the two kinds of control groups name it differently.
    let details = memory.stats.as_ref();
    let cache = ["total_inactive_file", "inactive_file"].iter().find_map(|name| details?.get(*name).copied());
    Some(Spent { cpu_micros: cpu_nanos / 1000, memory_bytes: memory.usage?.saturating_sub(cache.unwrap_or_default()) })
}
