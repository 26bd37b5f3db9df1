//! A linearizability checker for a register.
//!
//! The algorithm of Wing and Gong with Lowe's memoisation: pick any operation that could come next, check its result,
//! continue, and backtrack when nothing fits.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

/// One operation on a register.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) action: Action,
    pub(crate) called: Instant,
    /// `None` if it is unknown whether it took effect.
    pub(crate) returned: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Write(String),
    Read(Option<String>),
}

/// Whether some order explains all operations on a register.
pub(crate) fn linearizable(operations: &[Operation]) -> bool {
    let mut seen = HashSet::new();
    // Depth first with an explicit stack: which operations are done, and the value of the register after them.
    let mut stack = vec![(vec![false; operations.len()], None::<String>)];
    while let Some((done, value)) = stack.pop() {
        let open = || operations.iter().zip(&done).filter(|(_, done)| !**done).map(|(operation, _)| operation);
        if open().all(|operation| operation.returned.is_none()) {
            return true;
        }
        // Any operation called before the first open operation returned may come next.
        let first_return = open().filter_map(|operation| operation.returned).min();
        for (place, operation) in operations.iter().enumerate() {
            if done[place] || first_return.is_some_and(|first| operation.called > first) {
                continue;
            }
            let next = match &operation.action {
                Action::Write(written) => Some(written.clone()),
                Action::Read(read) if *read == value => value.clone(),
                Action::Read(_) => continue,
            };
            let mut done = done.clone();
            done[place] = true;
            if seen.insert((done.clone(), next.clone())) {
                stack.push((done, next));
            }
        }
    }
    operations.is_empty()
}

#[test]
fn the_checker_accepts_and_rejects_known_histories() {
    let start = Instant::now();
    let at = |millis| start + Duration::from_millis(millis);
    let operation = |action, from, to: Option<u64>| Operation { action, called: at(from), returned: to.map(at) };
    let write = |value: &str, from, to| operation(Action::Write(value.to_owned()), from, to);
    let read = |value: Option<&str>, from, to| operation(Action::Read(value.map(str::to_owned)), from, Some(to));

    assert!(linearizable(&[write("a", 0, Some(10)), read(None, 1, 3), read(Some("a"), 4, 12)]), "overlapping");
    assert!(!linearizable(&[write("a", 0, Some(10)), read(None, 11, 12)]), "a stale read");
    assert!(
        !linearizable(&[write("a", 0, Some(10)), read(Some("a"), 1, 3), read(None, 4, 6)]),
        "an older value after a newer one"
    );
    assert!(linearizable(&[write("a", 0, None), read(None, 5, 6), read(Some("a"), 7, 8)]), "it took effect late");
    assert!(!linearizable(&[write("a", 0, Some(1)), write("b", 2, Some(3)), read(Some("a"), 4, 5)]), "a lost write");
}
