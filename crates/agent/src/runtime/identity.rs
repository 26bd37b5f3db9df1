//! What a replica is told about itself, in variables, whatever drives it.
//!
//! Owns: the names. Invariant: nothing here changes while the replica lives, so that it never has to be made anew for it.

use longshore_model::Work;

/// Names and values; the manifest's own win over them.
pub(crate) fn variables(work: &Work) -> [(String, String); 5] {
    let group = &work.key.group;
    [
        ("LONGSHORE_NAMESPACE", group.namespace.to_string()),
        ("LONGSHORE_DEPLOYMENT", group.deployment.to_string()),
        ("LONGSHORE_SERVICE", group.service.to_string()),
        ("LONGSHORE_REPLICA", work.key.slot.printed(group)),
        ("LONGSHORE_NODE", work.assignment.node.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::book::tests::work;

    #[test]
    fn a_replica_knows_its_name_and_its_node() {
        let told = variables(&work(3, 1)).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(told[3..], ["LONGSHORE_REPLICA=shop-web-3", "LONGSHORE_NODE=n1"]);
    }
}
