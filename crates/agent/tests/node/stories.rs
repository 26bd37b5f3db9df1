//! The stories: each tests one behaviour of an agent, with both drivers where that applies.

mod agent_restarts;
mod attempts;
mod docker_driver;
mod engine_outages;
mod exec_driver;
mod faults;
mod image_pulls;
mod lifecycle;
mod logs_and_exec;
mod secret_memory;

use crate::runner::Story;

/// Runs each story with plain processes and with containers.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        vec![$(
            Story {
                name: concat!(stringify!($name), "_exec"),
                needs: Needs::Processes,
                run: |env| Box::pin($name(env, Driver::Exec)),
            },
            Story {
                name: concat!(stringify!($name), "_docker"),
                needs: Needs::Docker,
                run: |env| Box::pin($name(env, Driver::Docker)),
            },
        )*]
    };
}

/// Runs each story with one driver only.
macro_rules! one_driver {
    ($needs:ident: $($name:ident),* $(,)?) => {
        vec![$(Story {
            name: stringify!($name),
            needs: Needs::$needs,
            run: |env| Box::pin($name(env)),
        },)*]
    };
}

use both;
use one_driver;

pub(crate) fn all() -> Vec<Story> {
    [
        lifecycle::stories(),
        attempts::stories(),
        logs_and_exec::stories(),
        secret_memory::stories(),
        agent_restarts::stories(),
        exec_driver::stories(),
        docker_driver::stories(),
        engine_outages::stories(),
        image_pulls::stories(),
        faults::stories(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
