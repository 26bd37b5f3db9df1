//! The environment variables that tell a replica its own identity, with every driver.
//!
//! Owns: their names. Invariant: their values never change while the replica exists, so it is never recreated for them.

use longshore_model::Work;

/// Names and values. Variables of the manifest with the same name take precedence.
pub(crate) fn variables(work: &Work) -> [(String, String); 5] {
    let group = &work.key.group;
    [
        ("LONGSHORE_NAMESPACE", group.namespace.to_string()),
        ("LONGSHORE_DEPLOYMENT", group.deployment.to_string()),
        ("LONGSHORE_SERVICE", group.service.to_string()),
        ("LONGSHORE_REPLICA", work.key.slot.replica_id(group)),
        ("LONGSHORE_NODE", work.assignment.node.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired_work::tests::work;

    #[test]
    fn a_replica_knows_its_name_and_its_node() {
        let variables = variables(&work(3, 1)).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(variables[3..], ["LONGSHORE_REPLICA=shop-web-3", "LONGSHORE_NODE=n1"]);
    }
}
