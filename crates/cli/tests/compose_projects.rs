//! Compose projects of all kinds, run by `docker-compose` and then by `longshore up` on the same machine: the same
//! questions get the same answers, and nothing is warned about that works. `PROJECT=name` runs one of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails by panicking")]

#[path = "support/compose_machine.rs"]
mod compose_machine;

use std::time::{Duration, Instant};

use compose_machine::{
    Machine, ProjectFolder,
    Question::{self, Datagram, Inside, Line, Page, Services},
    Tool,
};

/// Longest wait for the expected answer; the slowest project waits for a program that crashes a few times.
const PATIENCE: Duration = Duration::from_secs(45);

/// A project, and what a user asks it.
struct Project {
    /// Its folder, which gives it its name.
    name: &'static str,
    /// Options in front of the command of `docker-compose`.
    compose: &'static [&'static str],
    /// Options of `longshore up`.
    longshore: &'static [&'static str],
    /// What becomes of the volumes that `docker-compose` made.
    volumes: Volumes,
    /// Questions and answers, in this order.
    story: &'static [(Asked, Question, &'static str)],
    /// The warnings that `longshore up` prints.
    warnings: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Volumes {
    Deleted,
    Kept,
}

/// Of which tool something is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Both,
    /// What has to happen once, so that the other finds it, and what the other cannot do.
    Only(Tool),
}

use Asked::{Both, Only};

const PROJECT: Project =
    Project { name: "", compose: &[], longshore: &[], volumes: Volumes::Deleted, story: &[], warnings: &[] };

const PROJECTS: &[Project] = &[
    Project {
        name: "web_api_database",
        story: &[
            (Both, Page("127.0.0.1:8101/cgi-bin/stock"), "in stock: no anchors"),
            (Both, Inside("api", &["fetch", "localhost", "80", "/cgi-bin/restock"]), "OK"),
            (Both, Page("10.215.0.2:8101/cgi-bin/stock"), "in stock: 42"),
            (Both, Inside("api", &["sh", "-c", "timeout 5 getent hosts db >/dev/null && echo known"]), "known"),
            // The two are on no common network. There is no server for other names, which would be waited for.
            (Both, Inside("web", &["sh", "-c", "timeout 1 getent hosts db || echo unknown"]), "unknown"),
        ],
        ..PROJECT
    },
    Project {
        name: "env_file",
        story: &[(
            Both,
            Page("127.0.0.1:8102/cgi-bin/environment"),
            "\
LOG_LEVEL=debug
MOTTO=changed here
DATABASE_URL=postgres://app:s3cret@db:5432/app?sslmode=disable
EMPTY=
EXPORTED=yes
STAGE=test  stage
GREETING=hello from .env
STAGE_OF_SHELL=none
PRICE=5$
TAG is not set",
        )],
        ..PROJECT
    },
    Project {
        name: "health_chain",
        story: &[(Both, Page("127.0.0.1:8103/"), "cache: no anything; db: yes")],
        ..PROJECT
    },
    Project {
        name: "migration",
        story: &[
            (Both, Page("127.0.0.1:8104/cgi-bin/schema"), "schema 7, migrated 1 times"),
            (Both, Services, "app db"),
        ],
        ..PROJECT
    },
    Project {
        name: "build_arguments",
        story: &[
            (Both, Page("127.0.0.1:8105/"), "version 2.5 of unknown"),
            (Both, Page("127.0.0.1:8105/motto"), "built, not bought"),
            (Both, Inside("app", &["sh", "-c", "echo $STAGE"]), "release"),
            (Both, Inside("tool", &["cat", "/out/page"]), "version none"),
        ],
        ..PROJECT
    },
    Project {
        name: "volume_data",
        longshore: &["--adopt-volumes"],
        volumes: Volumes::Kept,
        story: &[
            (Only(Tool::DockerCompose), Line("127.0.0.1:8106", "SET berth seven"), "OK"),
            (Only(Tool::DockerCompose), Inside("db", &["sh", "-c", "echo monday > /backups/last"]), ""),
            (Both, Line("127.0.0.1:8106", "GET berth"), "seven"),
            (Both, Inside("db", &["cat", "/backups/last"]), "monday"),
        ],
        ..PROJECT
    },
    Project {
        name: "secrets_configs",
        story: &[
            (Both, Page("127.0.0.1:8107/cgi-bin/secrets"), "password: correct horse\nkey: k-123\nkey\npassword"),
            // `docker-compose` 1.29 says that it ignores `configs`.
            (Only(Tool::Longshore), Page("127.0.0.1:8107/cgi-bin/motto"), "nothing is lost"),
        ],
        ..PROJECT
    },
    Project {
        name: "profiles",
        story: &[
            (Both, Page("127.0.0.1:8108/"), "web"),
            (Both, Page("127.0.0.1:8118/"), "nobody answers"),
            (Both, Services, "web"),
        ],
        ..PROJECT
    },
    Project {
        name: "profiles",
        compose: &["--profile", "debug"],
        longshore: &["--profile", "debug"],
        story: &[
            (Both, Page("127.0.0.1:8108/"), "web"),
            (Both, Page("127.0.0.1:8118/"), "admin"),
            (Both, Services, "admin web"),
        ],
        ..PROJECT
    },
    Project {
        name: "extends",
        // `docker-compose` 1.29 does not know `include`: the first file is included by the other one.
        longshore: &["-f", "include.yaml"],
        story: &[
            (Both, Page("127.0.0.1:8109/cgi-bin/whoami"), "web of harbour at level web from shared folder"),
            (Both, Page("127.0.0.1:8119/cgi-bin/whoami"), "mirror of harbour at level plain from shared folder"),
            (Only(Tool::DockerCompose), Services, "mirror plain web"),
            (Only(Tool::Longshore), Services, "mirror plain watcher web"),
        ],
        ..PROJECT
    },
    Project {
        name: "several_files",
        story: &[
            (Both, Page("127.0.0.1:8110/"), "blue development"),
            (Both, Page("127.0.0.1:8120/"), "blue development"),
        ],
        ..PROJECT
    },
    Project {
        name: "several_files",
        compose: &["-f", "docker-compose.yml", "-f", "production.yml"],
        longshore: &["-f", "docker-compose.yml", "-f", "production.yml"],
        story: &[
            (Both, Page("127.0.0.1:8110/"), "blue production"),
            (Both, Page("127.0.0.1:8120/"), "nobody answers"),
            (Both, Services, "web worker"),
        ],
        ..PROJECT
    },
    Project {
        name: "tcp_udp_ports",
        story: &[
            (Both, Page("127.0.0.1:8111/"), "a page"),
            (Both, Page("10.215.0.2:8111/"), "a page"),
            (Both, Page("[::1]:8111/"), "a page"),
            (Both, Page("127.0.0.1:8112/"), "a page"),
            (Both, Page("10.215.0.2:8112/"), "nobody answers"),
            (Both, Page("127.0.0.1:8113/"), "a page"),
            (Both, Datagram("127.0.0.1:8114", "ahoy"), "heard_ahoy"),
            (Both, Datagram("10.215.0.2:8114", "again"), "heard_again"),
            (Both, Line("127.0.0.1:8116", "which?"), "second"),
        ],
        ..PROJECT
    },
    Project {
        name: "crash_until_database",
        story: &[(Both, Page("127.0.0.1:8122/"), "OK\napp"), (Both, Services, "app db")],
        ..PROJECT
    },
    Project {
        name: "global_sidecar",
        story: &[(Both, Line("127.0.0.1:8123", "GET app"), "alive"), (Both, Services, "app collector")],
        ..PROJECT
    },
];

/// Asks the questions of a project until the answers are the expected ones; returns the wrong answers.
fn ask(project: &Project, folder: &ProjectFolder<'_>, tool: Tool) -> Vec<String> {
    let mut wrong = Vec::new();
    for (asked, question, expected) in project.story {
        if ![Both, Only(tool)].contains(asked) {
            continue;
        }
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            let answer = folder.ask(tool, project.compose, *question);
            if answer == *expected || Instant::now() > deadline {
                break answer;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if answer != *expected {
            wrong.push(format!("{} under {tool:?}: {question:?} gives {answer:?}, not {expected:?}", project.name));
            break;
        }
    }
    wrong
}

/// Runs a project under both tools; returns what was wrong.
fn compare(project: &Project, folder: &ProjectFolder<'_>) -> Vec<String> {
    folder.docker_compose(project.compose, &["up", "-d"]);
    let mut wrong = ask(project, folder, Tool::DockerCompose);
    match project.volumes {
        Volumes::Deleted => drop(folder.docker_compose(project.compose, &["down", "--volumes"])),
        Volumes::Kept => {
            folder.docker_compose(project.compose, &["down"]);
            // Nothing is started beside the data without a word.
            match folder.longshore_up(&[]) {
                Err(refusal) if refusal.contains("--adopt-volumes") => {}
                Err(other) => wrong.push(other),
                Ok(up) => {
                    wrong.push(format!("{} starts on empty volumes beside those of Compose", project.name));
                    up.interrupt();
                }
            }
        }
    }
    let up = match folder.longshore_up(project.longshore) {
        Ok(up) => up,
        Err(ended) => return [wrong, vec![ended]].concat(),
    };
    wrong.extend(ask(project, folder, Tool::Longshore));
    let warnings = up.warnings();
    if warnings != project.warnings {
        wrong.push(format!("{}: `longshore up` warns: {}", project.name, warnings.join("\n")));
    }
    up.interrupt();
    wrong
}

#[test]
fn compose_projects_answer_alike_under_docker_compose_and_longshore() {
    let machine = Machine::start();
    let only = std::env::var("PROJECT").unwrap_or_default();
    let mut wrong = Vec::new();
    for project in PROJECTS.iter().filter(|project| project.name.contains(&only)) {
        let began = Instant::now();
        wrong.extend(compare(project, &machine.project(project.name)));
        println!("{} {:?}: {:?}", project.name, project.longshore, began.elapsed());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
