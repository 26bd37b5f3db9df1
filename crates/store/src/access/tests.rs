//! Stories of seats and tokens.

use longshore_model::{
    Command,
    access::{Power, TokenScope},
};

use super::*;

fn founded() -> State {
    let mut state = State::default();
    let sealed = Sealed { key: 1, bytes: vec![7] };
    let authority = Authority { certificate: vec![1], key: sealed };
    let seat = Seat {
        member: MemberId(1),
        address: "10.0.0.1:7474".to_owned(),
        certificate: vec![2],
        fingerprint: "f1".into(),
        key: "k1".into(),
        part: SeatPart::Server,
        token: None,
        proof: None,
        since: Time(0),
    };
    tell(&mut state, AccessCommand::Found { authority, node: "n1".into(), seat }).unwrap();
    state
}

fn tell(state: &mut State, command: AccessCommand) -> Result<Vec<Event>, CommandError> {
    state.apply(Command::Access(Box::new(command)))
}

fn grant(state: &mut State, id: &str, part: SeatPart) {
    let grant = JoinGrant { digest: "d".into(), part, expires_at: Time(1000) };
    tell(state, AccessCommand::GrantJoin { id: id.into(), grant }).unwrap();
}

fn admission(node: &str, token: &str, at: u64) -> AccessCommand {
    AccessCommand::Admit {
        node: node.into(),
        token: token.into(),
        digest: "d".into(),
        address: format!("{node}:7474"),
        certificate: vec![3],
        // Made anew each time somebody asks, unlike the key.
        fingerprint: format!("f-{node}-{at}").as_str().into(),
        key: format!("k-{node}").as_str().into(),
        at: Time(at),
    }
}

#[test]
fn a_token_lets_one_node_in_and_the_same_node_may_ask_again() {
    let mut state = founded();
    grant(&mut state, "t1", SeatPart::Worker);
    assert_eq!(tell(&mut state, admission("n2", "t1", 10)), Ok(vec![Event::AccessChanged]));
    let seat = state.access().seat(&"n2".into()).unwrap();
    assert_eq!((seat.member, seat.part), (MemberId(2), SeatPart::Worker));
    assert_eq!(tell(&mut state, admission("n2", "t1", 11)), Ok(vec![]), "the answer was lost and is asked for again");
    assert_eq!(tell(&mut state, admission("n3", "t1", 12)), Err(CommandError::JoinTokenInvalid), "a replayed token");
    let mut guessed = admission("n2", "t1", 13);
    if let AccessCommand::Admit { digest, .. } = &mut guessed {
        *digest = "x".into();
    }
    assert!(tell(&mut state, guessed).is_err(), "the id and the key of a token are no secret");
}

#[test]
fn nobody_gets_in_with_a_wrong_or_old_token_or_under_a_name_that_is_taken() {
    let mut state = founded();
    grant(&mut state, "t1", SeatPart::Server);
    let mut forged = admission("n2", "t1", 10);
    if let AccessCommand::Admit { digest, .. } = &mut forged {
        *digest = "x".into();
    }
    assert_eq!(tell(&mut state, forged), Err(CommandError::JoinTokenInvalid));
    assert_eq!(tell(&mut state, admission("n2", "t1", 1000)), Err(CommandError::JoinTokenExpired));
    assert_eq!(tell(&mut state, admission("n1", "t1", 10)), Err(CommandError::DuplicateNode("n1".into())));
    assert_eq!(tell(&mut state, admission("n2", "t9", 10)), Err(CommandError::JoinTokenInvalid));
}

#[test]
fn a_member_id_is_never_given_twice() {
    let mut state = founded();
    grant(&mut state, "t1", SeatPart::Server);
    tell(&mut state, admission("n2", "t1", 1)).unwrap();
    let gone = Command::SetIntent { node: "n2".into(), intent: longshore_model::Intent::Removed, at: Time(2) };
    assert_eq!(state.apply(gone), Ok(vec![Event::AccessChanged]), "let in and never heard of");
    assert_eq!(state.access().seat(&"n2".into()), None);
    assert!(state.access().is_unseated(&"f-n2-1".into()));
    grant(&mut state, "t2", SeatPart::Server);
    tell(&mut state, admission("n2", "t2", 3)).unwrap();
    assert_eq!(state.access().seat(&"n2".into()).unwrap().member, MemberId(3));
}

#[test]
fn a_cluster_is_founded_once() {
    let mut state = founded();
    let access = state.access().clone();
    let (authority, seat) = (access.authority.unwrap(), Seat::clone(&access.seats[&NodeName::from("n1")]));
    let again = tell(&mut state, AccessCommand::Found { authority, node: "n9".into(), seat });
    assert_eq!(again, Err(CommandError::AlreadyFounded));
}

#[test]
fn a_revoked_token_is_gone() {
    let mut state = founded();
    let token = AccessToken {
        name: "ci".to_owned(),
        digest: "d".into(),
        power: Power::Deploy,
        scope: TokenScope::default(),
        expires_at: None,
        since: Time(0),
    };
    tell(&mut state, AccessCommand::IssueToken { id: "o1".into(), token: token.clone() }).unwrap();
    assert_eq!(state.access().token(&"o1".into()), Some(&token));
    let twice = tell(&mut state, AccessCommand::IssueToken { id: "o1".into(), token });
    assert_eq!(twice, Err(CommandError::DuplicateToken("o1".into())));
    tell(&mut state, AccessCommand::RevokeToken { id: "o1".into() }).unwrap();
    assert_eq!(state.access().token(&"o1".into()), None);
    let again = tell(&mut state, AccessCommand::RevokeToken { id: "o1".into() });
    assert_eq!(again, Err(CommandError::UnknownToken("o1".into())));
}

#[test]
fn older_versions_of_a_secret_stay_for_those_who_run_with_them() {
    let mut state = founded();
    for version in 1..=12 {
        let contents = Sealed { key: 1, bytes: vec![version] };
        let (namespace, name) = ("default".into(), "db-pass".into());
        let version = u64::from(version);
        tell(&mut state, AccessCommand::StoreSecret { namespace, name, version, contents, deployment: None }).unwrap();
    }
    let kept = |version| state.access().contents(&"default".into(), &"db-pass".into(), version).is_some();
    assert_eq!([2, 3, 12].map(kept), [false, true, true]);
    let rewritten = AccessCommand::StoreSecret {
        namespace: "default".into(),
        name: "db-pass".into(),
        version: 12,
        contents: Sealed { key: 1, bytes: vec![99] },
        deployment: None,
    };
    assert_eq!(tell(&mut state, rewritten), Ok(vec![]));
    assert_eq!(state.access().contents(&"default".into(), &"db-pass".into(), 12).unwrap().bytes, [12]);
}

#[test]
fn a_cluster_that_begins_again_has_one_server_and_keeps_its_workers() {
    let mut state = founded();
    for (node, token, part) in [("n2", "t2", SeatPart::Server), ("n3", "t3", SeatPart::Worker)] {
        grant(&mut state, token, part);
        tell(&mut state, admission(node, token, 1)).unwrap();
    }
    let seat = Seat { member: state.access().next_member(), ..Seat::clone(state.access().seat(&"n1".into()).unwrap()) };
    tell(&mut state, AccessCommand::BeginAgain { node: "n1".into(), seat: seat.clone() }).unwrap();
    let access = state.access();
    let seated: Vec<&str> = access.seats().map(|(node, _)| node.as_str()).collect();
    assert_eq!((seated, access.incarnation()), (vec!["n1", "n3"], 1));
    assert_eq!(access.seat(&"n1".into()).unwrap().member, MemberId(4));
    assert!(access.is_unseated(&"f-n2-1".into()) && !access.is_unseated(&seat.fingerprint));
}

fn sealed(key: u32, byte: u8) -> Sealed {
    Sealed { key, bytes: vec![byte] }
}

fn store(name: &str, version: u64, contents: Sealed, deployment: Option<&str>) -> AccessCommand {
    let (namespace, deployment) = ("default".into(), deployment.map(Into::into));
    AccessCommand::StoreSecret { namespace, name: name.into(), version, contents, deployment }
}

#[test]
fn a_newer_key_is_used_from_one_moment_on_and_what_is_sealed_follows_piece_by_piece() {
    let mut state = founded();
    tell(&mut state, store("db-pass", 1, sealed(1, 1), None)).unwrap();
    tell(&mut state, store("db-pass", 2, sealed(1, 2), None)).unwrap();
    assert_eq!(state.access().sealing_key(), 1);
    tell(&mut state, AccessCommand::UseKey { key: 3 }).unwrap();
    assert_eq!(tell(&mut state, AccessCommand::UseKey { key: 2 }), Ok(vec![]), "it never goes back");
    let late = store("db-pass", 3, sealed(1, 3), None);
    assert_eq!(tell(&mut state, late), Err(CommandError::KeyOutdated(1)), "sealed by somebody who has not heard");

    let things: Vec<SealedThing> = state.access().sealed().map(|(thing, _)| thing).collect();
    assert_eq!(things.len(), 3);
    for what in things.clone() {
        let again = AccessCommand::Reseal { what: what.clone(), sealed: sealed(3, 9) };
        assert_eq!(tell(&mut state, again.clone()), Ok(vec![Event::AccessChanged]));
        assert_eq!(tell(&mut state, again), Ok(vec![]), "another leader was faster");
        let older = AccessCommand::Reseal { what, sealed: sealed(2, 8) };
        assert_eq!(tell(&mut state, older), Ok(vec![]), "an older key is never taken");
    }
    assert!(state.access().sealed().all(|(_, sealed)| (sealed.key, sealed.bytes[0]) == (3, 9)));
    tell(&mut state, AccessCommand::RemoveSecret { namespace: "default".into(), name: "db-pass".into() }).unwrap();
    for what in things.into_iter().skip(1) {
        let gone = AccessCommand::Reseal { what, sealed: sealed(4, 9) };
        assert_eq!(tell(&mut state, gone), Ok(vec![]), "what was removed does not come back");
    }
}

#[test]
fn a_secret_of_one_deployment_is_nobody_elses() {
    let mut state = founded();
    tell(&mut state, store("shop_key", 1, sealed(1, 1), Some("shop"))).unwrap();
    tell(&mut state, store("shared", 1, sealed(1, 1), None)).unwrap();
    for (name, version) in [("shop_key", 2), ("shared", 2)] {
        let (name, deployment) = (SecretName::from(name), DeploymentName::from("blog"));
        let refused = CommandError::SecretNotYours { name: name.clone(), deployment };
        assert_eq!(tell(&mut state, store(name.as_str(), version, sealed(1, 2), Some("blog"))), Err(refused));
    }
    tell(&mut state, store("shop_key", 2, sealed(1, 2), None)).unwrap();
    let (namespace, key) = ("default".into(), "shop_key".into());
    assert!(state.access().may_use(&namespace, &"shop".into(), &key), "an admin may change it and it stays the shop's");
    assert!(!state.access().may_use(&namespace, &"blog".into(), &key));
    let remove = |name: &str| AccessCommand::RemoveSecret { namespace: "default".into(), name: name.into() };
    let gone = Event::SecretGone { namespace: "default".into(), name: "shop_key".into() };
    assert_eq!(tell(&mut state, remove("shop_key")), Ok(vec![gone]));
    assert_eq!(tell(&mut state, remove("shop_key")), Err(CommandError::UnknownSecret("shop_key".into())));
    assert!(state.access().may_use(&namespace, &"blog".into(), &key));
}
