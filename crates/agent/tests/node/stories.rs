//! What an agent promises, told as stories. The same are told of both drivers wherever that makes sense.

mod attempts;
mod docker;
mod life;
mod looking;
mod memory;
mod processes;
mod pulls;
mod restarts;
mod trouble;

use crate::runner::Story;

/// Tells each story of plain processes and of containers.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        vec![$(
            Story {
                name: concat!(stringify!($name), "_exec"),
                needs: Needs::Processes,
                tell: |ground| Box::pin($name(ground, Driver::Exec)),
            },
            Story {
                name: concat!(stringify!($name), "_docker"),
                needs: Needs::Docker,
                tell: |ground| Box::pin($name(ground, Driver::Docker)),
            },
        )*]
    };
}

/// Tells each story of one driver alone.
macro_rules! one_driver {
    ($needs:ident: $($name:ident),* $(,)?) => {
        vec![$(Story {
            name: stringify!($name),
            needs: Needs::$needs,
            tell: |ground| Box::pin($name(ground)),
        },)*]
    };
}

use both;
use one_driver;

pub(crate) fn all() -> Vec<Story> {
    [
        life::stories(),
        attempts::stories(),
        looking::stories(),
        memory::stories(),
        restarts::stories(),
        processes::stories(),
        docker::stories(),
        pulls::stories(),
        trouble::stories(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
