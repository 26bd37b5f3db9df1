//! Memberships, tokens and sealed secrets.

use longshore_model::{
    Command,
    access::{TokenRole, TokenScope},
    command::Quota,
};

use super::*;

fn bootstrapped() -> State {
    let mut state = State::default();
    let sealed = Sealed { key: 1, bytes: vec![7] };
    let authority = Authority { certificate: vec![1], key: sealed };
    let membership = NodeMembership {
        member: MemberId(1),
        address: "10.0.0.1:7474".to_owned(),
        certificate: vec![2],
        fingerprint: "f1".into(),
        key: "k1".into(),
        role: NodeRole::Server,
        token: None,
        token_digest: None,
        since: Time(0),
    };
    apply(&mut state, AccessCommand::Bootstrap { authority, node: "n1".into(), membership }).unwrap();
    state
}

fn apply(state: &mut State, command: AccessCommand) -> Result<Vec<Event>, CommandError> {
    state.apply(Command::Access(Box::new(command)))
}

fn grant(state: &mut State, id: &str, role: NodeRole) {
    let grant = JoinGrant { digest: "d".into(), role, expires_at: Time(1000) };
    apply(state, AccessCommand::GrantJoin { id: id.into(), grant }).unwrap();
}

fn admission(node: &str, token: &str, at: u64) -> AccessCommand {
    AccessCommand::Admit {
        node: node.into(),
        token: token.into(),
        digest: "d".into(),
        address: format!("{node}:7474"),
        certificate: vec![3],
        // A new certificate for each request; the key stays the same.
        fingerprint: format!("f-{node}-{at}").as_str().into(),
        key: format!("k-{node}").as_str().into(),
        at: Time(at),
    }
}

#[test]
fn a_token_admits_one_node_and_that_node_may_repeat_its_request() {
    let mut state = bootstrapped();
    grant(&mut state, "t1", NodeRole::Worker);
    assert_eq!(apply(&mut state, admission("n2", "t1", 10)), Ok(vec![Event::AccessChanged]));
    let membership = state.access().membership(&"n2".into()).unwrap();
    assert_eq!((membership.member, membership.role), (MemberId(2), NodeRole::Worker));
    assert_eq!(apply(&mut state, admission("n2", "t1", 11)), Ok(vec![]), "a repeated request");
    assert_eq!(apply(&mut state, admission("n3", "t1", 12)), Err(CommandError::JoinTokenInvalid), "a replayed token");
    let mut guessed = admission("n2", "t1", 13);
    if let AccessCommand::Admit { digest, .. } = &mut guessed {
        *digest = "x".into();
    }
    assert!(apply(&mut state, guessed).is_err(), "the digest must match, too");
}

#[test]
fn a_wrong_or_expired_token_and_a_taken_name_are_refused() {
    let mut state = bootstrapped();
    grant(&mut state, "t1", NodeRole::Server);
    let mut forged = admission("n2", "t1", 10);
    if let AccessCommand::Admit { digest, .. } = &mut forged {
        *digest = "x".into();
    }
    assert_eq!(apply(&mut state, forged), Err(CommandError::JoinTokenInvalid));
    assert_eq!(apply(&mut state, admission("n2", "t1", 1000)), Err(CommandError::JoinTokenExpired));
    assert_eq!(apply(&mut state, admission("n1", "t1", 10)), Err(CommandError::DuplicateNode("n1".into())));
    assert_eq!(apply(&mut state, admission("n2", "t9", 10)), Err(CommandError::JoinTokenInvalid));
}

#[test]
fn a_member_id_is_never_assigned_twice() {
    let mut state = bootstrapped();
    grant(&mut state, "t1", NodeRole::Server);
    apply(&mut state, admission("n2", "t1", 1)).unwrap();
    let gone = Command::SetIntent { node: "n2".into(), intent: longshore_model::Intent::Removed, at: Time(2) };
    assert_eq!(state.apply(gone), Ok(vec![Event::AccessChanged]), "admitted, but never joined");
    assert_eq!(state.access().membership(&"n2".into()), None);
    assert!(state.access().is_revoked(&"f-n2-1".into()));
    grant(&mut state, "t2", NodeRole::Server);
    apply(&mut state, admission("n2", "t2", 3)).unwrap();
    assert_eq!(state.access().membership(&"n2".into()).unwrap().member, MemberId(3));
}

#[test]
fn a_cluster_is_bootstrapped_once() {
    let mut state = bootstrapped();
    let access = state.access().clone();
    let (authority, membership) =
        (access.authority.unwrap(), NodeMembership::clone(&access.memberships[&NodeName::from("n1")]));
    let again = apply(&mut state, AccessCommand::Bootstrap { authority, node: "n9".into(), membership });
    assert_eq!(again, Err(CommandError::AlreadyBootstrapped));
}

#[test]
fn a_revoked_token_is_gone() {
    let mut state = bootstrapped();
    let token = AccessToken {
        name: "ci".to_owned(),
        digest: "d".into(),
        role: TokenRole::Deploy,
        scope: TokenScope::default(),
        expires_at: None,
        since: Time(0),
    };
    apply(&mut state, AccessCommand::IssueToken { id: "o1".into(), token: token.clone() }).unwrap();
    assert_eq!(state.access().token(&"o1".into()), Some(&token));
    let twice = apply(&mut state, AccessCommand::IssueToken { id: "o1".into(), token });
    assert_eq!(twice, Err(CommandError::DuplicateToken("o1".into())));
    apply(&mut state, AccessCommand::RevokeToken { id: "o1".into() }).unwrap();
    assert_eq!(state.access().token(&"o1".into()), None);
    let again = apply(&mut state, AccessCommand::RevokeToken { id: "o1".into() });
    assert_eq!(again, Err(CommandError::UnknownToken("o1".into())));
}

#[test]
fn older_versions_of_a_secret_are_kept_for_replicas_that_use_them() {
    let mut state = bootstrapped();
    for version in 1..=12 {
        let contents = Sealed { key: 1, bytes: vec![version] };
        let (namespace, name) = ("default".into(), "db-pass".into());
        let version = u64::from(version);
        apply(
            &mut state,
            AccessCommand::StoreSecret { namespace, name, version, contents, deployment: None, by_operator: false },
        )
        .unwrap();
    }
    let kept = |version| state.access().contents(&"default".into(), &"db-pass".into(), version).is_some();
    assert_eq!([2, 3, 12].map(kept), [false, true, true]);
    let rewritten = AccessCommand::StoreSecret {
        namespace: "default".into(),
        name: "db-pass".into(),
        version: 12,
        contents: Sealed { key: 1, bytes: vec![99] },
        deployment: None,
        by_operator: false,
    };
    assert_eq!(apply(&mut state, rewritten), Ok(vec![]));
    assert_eq!(state.access().contents(&"default".into(), &"db-pass".into(), 12).unwrap().bytes, [12]);
}

#[test]
fn a_recovered_cluster_has_one_server_and_keeps_its_workers() {
    let mut state = bootstrapped();
    for (node, token, part) in [("n2", "t2", NodeRole::Server), ("n3", "t3", NodeRole::Worker)] {
        grant(&mut state, token, part);
        apply(&mut state, admission(node, token, 1)).unwrap();
    }
    let membership = NodeMembership {
        member: state.access().next_member(),
        ..NodeMembership::clone(state.access().membership(&"n1".into()).unwrap())
    };
    apply(&mut state, AccessCommand::Recover { node: "n1".into(), membership: membership.clone() }).unwrap();
    let access = state.access();
    let members: Vec<&str> = access.memberships().map(|(node, _)| node.as_str()).collect();
    assert_eq!((members, access.incarnation()), (vec!["n1", "n3"], 1));
    assert_eq!(access.membership(&"n1".into()).unwrap().member, MemberId(4));
    assert!(access.is_revoked(&"f-n2-1".into()) && !access.is_revoked(&membership.fingerprint));
}

fn sealed(key: u32, byte: u8) -> Sealed {
    Sealed { key, bytes: vec![byte] }
}

fn store(name: &str, version: u64, contents: Sealed, deployment: Option<&str>) -> AccessCommand {
    let (namespace, deployment) = ("default".into(), deployment.map(Into::into));
    AccessCommand::StoreSecret { namespace, name: name.into(), version, contents, deployment, by_operator: false }
}

#[test]
fn a_new_key_seals_from_then_on_and_older_items_are_sealed_again_one_by_one() {
    let mut state = bootstrapped();
    apply(&mut state, store("db-pass", 1, sealed(1, 1), None)).unwrap();
    apply(&mut state, store("db-pass", 2, sealed(1, 2), None)).unwrap();
    assert_eq!(state.access().sealing_key(), 1);
    apply(&mut state, AccessCommand::UseKey { key: 3 }).unwrap();
    assert_eq!(apply(&mut state, AccessCommand::UseKey { key: 2 }), Ok(vec![]), "the key never goes back");
    let late = store("db-pass", 3, sealed(1, 3), None);
    assert_eq!(apply(&mut state, late), Err(CommandError::KeyOutdated(1)), "sealed with the retired key");

    let things: Vec<SealedItem> = state.access().sealed().map(|(thing, _)| thing).collect();
    assert_eq!(things.len(), 3);
    for what in things.clone() {
        let again = AccessCommand::Reseal { what: what.clone(), sealed: sealed(3, 9) };
        assert_eq!(apply(&mut state, again.clone()), Ok(vec![Event::AccessChanged]));
        assert_eq!(apply(&mut state, again), Ok(vec![]), "already sealed with this key");
        let older = AccessCommand::Reseal { what, sealed: sealed(2, 8) };
        assert_eq!(apply(&mut state, older), Ok(vec![]), "an older key is ignored");
    }
    assert!(state.access().sealed().all(|(_, sealed)| (sealed.key, sealed.bytes[0]) == (3, 9)));
    apply(&mut state, AccessCommand::RemoveSecret { namespace: "default".into(), name: "db-pass".into() }).unwrap();
    for what in things.into_iter().skip(1) {
        let gone = AccessCommand::Reseal { what, sealed: sealed(4, 9) };
        assert_eq!(apply(&mut state, gone), Ok(vec![]), "a removed secret stays removed");
    }
}

#[test]
fn a_secret_of_one_deployment_is_out_of_scope_for_others() {
    let mut state = bootstrapped();
    apply(&mut state, store("shop_key", 1, sealed(1, 1), Some("shop"))).unwrap();
    apply(&mut state, store("shared", 1, sealed(1, 1), None)).unwrap();
    for (name, version) in [("shop_key", 2), ("shared", 2)] {
        let (name, deployment) = (SecretName::from(name), DeploymentName::from("blog"));
        let refused = CommandError::SecretOutOfScope { name: name.clone(), deployment };
        assert_eq!(apply(&mut state, store(name.as_str(), version, sealed(1, 2), Some("blog"))), Err(refused));
    }
    apply(&mut state, store("shop_key", 2, sealed(1, 2), None)).unwrap();
    let (namespace, key) = ("default".into(), "shop_key".into());
    assert!(state.access().may_use(&namespace, &"shop".into(), &key), "a new version keeps the owner");
    assert!(!state.access().may_use(&namespace, &"blog".into(), &key));
    let remove = |name: &str| AccessCommand::RemoveSecret { namespace: "default".into(), name: name.into() };
    let gone = Event::SecretGone { namespace: "default".into(), name: "shop_key".into() };
    assert_eq!(apply(&mut state, remove("shop_key")), Ok(vec![gone]));
    assert_eq!(apply(&mut state, remove("shop_key")), Err(CommandError::UnknownSecret("shop_key".into())));
    assert!(state.access().may_use(&namespace, &"blog".into(), &key));
}

#[test]
fn an_operator_does_not_hand_a_secret_to_a_deployment_that_took_its_name_first() {
    let mut state = bootstrapped();
    apply(&mut state, store("db-pass", 1, sealed(1, 1), Some("evil"))).unwrap();
    let said = |deployment: Option<&str>| {
        let AccessCommand::StoreSecret { namespace, name, version, contents, deployment, .. } =
            store("db-pass", 2, sealed(1, 2), deployment)
        else {
            unreachable!("that is what `store` makes")
        };
        AccessCommand::StoreSecret { namespace, name, version, contents, deployment, by_operator: true }
    };
    for deployment in [None, Some("shop")] {
        let refused = apply(&mut state, said(deployment)).unwrap_err();
        assert_eq!((refused.code(), refused.to_string().contains("`evil`")), ("secret_owned", true));
    }
    assert!(apply(&mut state, said(Some("evil"))).is_ok(), "it is for that one");
}

#[test]
fn a_namespace_that_is_new_may_ask_nothing_and_an_older_one_keeps_everything() {
    let mut state = bootstrapped();
    let (older, newer) = (NamespaceName::from("older"), NamespaceName::from("newer"));
    let grant = |namespace: &NamespaceName| Command::SetQuota {
        namespace: namespace.clone(),
        quota: Quota { replicas: Some(1), ..Quota::default() },
    };
    state.apply(grant(&older)).unwrap();
    assert_eq!(state.access().policy(&newer), None, "not enforced yet");
    apply(&mut state, AccessCommand::EnforcePolicies).unwrap();
    state.apply(grant(&newer)).unwrap();
    assert_eq!(apply(&mut state, AccessCommand::EnforcePolicies), Ok(vec![]), "once");
    let policy =
        |state: &State, namespace: &NamespaceName| state.access().policy(namespace).map(std::borrow::Cow::into_owned);
    assert_eq!(policy(&state, &newer), Some(NamespacePolicy::default()));
    assert_eq!((policy(&state, &older), policy(&state, &NamespaceName::default_namespace())), (None, None));
    let names: Vec<String> = state.access().namespaces_without_policy().map(|name| name.to_string()).collect();
    assert_eq!(names, ["default", "older"]);
    let set = AccessCommand::SetPolicy { namespace: older.clone(), policy: Box::new(NamespacePolicy::default()) };
    apply(&mut state, set).unwrap();
    assert_eq!(policy(&state, &older), Some(NamespacePolicy::default()));
}
