//! The group `longshore`: who is in it may use the local socket, as root may.
//!
//! Owns: reading the group from this machine's own files. Groups of a directory service are not asked.
//! Must not touch: roles. A member of the group is as powerful as root here, as with the group `docker`.

use std::fs;

/// The group's name.
const GROUP: &str = "longshore";

/// The group's id, if this machine has the group.
pub(crate) fn gid() -> Option<u32> {
    gid_in(&fs::read_to_string("/etc/group").ok()?)
}

/// Whether a user of this machine is in the group.
pub(crate) fn has_member(uid: u32) -> bool {
    let files = fs::read_to_string("/etc/passwd").and_then(|users| Ok((users, fs::read_to_string("/etc/group")?)));
    files.is_ok_and(|(users, groups)| is_member(&users, &groups, uid))
}

fn gid_in(groups: &str) -> Option<u32> {
    line_of(groups)?.nth(2)?.parse().ok()
}

/// The fields of the group's line: name, password, id, members.
fn line_of(groups: &str) -> Option<std::str::Split<'_, char>> {
    groups.lines().map(|line| line.split(':')).find(|fields| fields.clone().next() == Some(GROUP))
}

fn is_member(users: &str, groups: &str, uid: u32) -> bool {
    let (Some(mut fields), Some(gid)) = (line_of(groups), gid_in(groups)) else { return false };
    let members: Vec<&str> = fields.nth(3).unwrap_or_default().split(',').map(str::trim).collect();
    users.lines().any(|line| {
        let user: Vec<&str> = line.split(':').collect();
        let number = |at: usize| user.get(at).and_then(|field| field.parse::<u32>().ok());
        let named = user.first().is_some_and(|name| !name.is_empty() && members.contains(name));
        number(2) == Some(uid) && (named || number(3) == Some(gid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/nonexistent:/bin/sh\nbob:x:1001:1001::/nonexistent:/bin/sh\n\
                         ops:x:1002:990::/nonexistent:/bin/sh\n";

    #[test]
    fn only_members_of_the_group_are_in_it_by_name_or_as_their_own_group() {
        let groups = "root:x:0:\nlongshore:x:990:ann,carl\nlongshoremen:x:991:bob\n";
        assert_eq!(gid_in(groups), Some(990));
        assert!(is_member(USERS, groups, 1000), "ann is listed");
        assert!(!is_member(USERS, groups, 1001), "bob is in another group");
        assert!(is_member(USERS, groups, 1002), "it is the own group of ops");
        assert!(!is_member(USERS, groups, 1003), "there is no such user");
    }

    #[test]
    fn without_the_group_nobody_is_in_it() {
        assert_eq!(gid_in("root:x:0:\n"), None);
        assert!(!is_member(USERS, "root:x:0:ann\n", 1000));
        assert!(!is_member(USERS, "longshore:x::\n", 1000), "a broken line makes no member");
        assert!(
            !is_member(":x:1000:1:::\n", "longshore:x:990:\n", 1000),
            "an empty name is no member of an empty list"
        );
    }
}
