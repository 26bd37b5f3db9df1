//! What an agent promises, told as stories. The same are told of both drivers wherever that makes sense.

mod docker;
mod life;
mod looking;
mod pulls;
mod restarts;

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

/// Tells each story of containers alone.
macro_rules! containers {
    ($needs:ident: $($name:ident),* $(,)?) => {
        vec![$(Story {
            name: stringify!($name),
            needs: Needs::$needs,
            tell: |ground| Box::pin($name(ground)),
        },)*]
    };
}

use both;
use containers;

pub(crate) fn all() -> Vec<Story> {
    [life::stories(), looking::stories(), restarts::stories(), pulls::stories(), docker::stories()]
        .into_iter()
        .flatten()
        .collect()
}
