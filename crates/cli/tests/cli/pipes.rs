//! Commands that follow something end when their pipe is closed, even while nothing changes.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{every_command, machine::Machine};

/// The exit code of a command whose reader closes the pipe after one line, as `head -1` does.
fn ends_after_a_line(machine: &Machine, line: &str) -> i32 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longshore"));
    machine.prepare(&mut command);
    command.args(line.split(' ')).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(!first.is_empty(), "{line} says nothing");
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let complaints = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
            assert_eq!(complaints, "", "{line}");
            return status.code().unwrap();
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            panic!("`longshore {line} | head -1` does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_following_command_ends_when_its_pipe_is_closed() {
    let machine = every_command::shop();
    let talk = every_command::SHOP.replace("name: shop", "name: talk");
    machine.write("talk.yaml", &talk.replace("[sleep, \"600\"]", "[sh, -c, \"echo hello; exec sleep 600\"]"));
    assert!(machine.ask(&["apply", "-f", "talk.yaml", "--wait"]).status.success());
    for line in
        ["status -w", "status -w -o json", "audit -f", "audit -f -o yaml", "logs talk -f", "logs talk -f -o json"]
    {
        assert_eq!(ends_after_a_line(&machine, line), 0, "{line}");
    }
    assert_eq!(ends_after_a_line(&machine, "exec shop-web-0 yes"), 141);
    assert_eq!(ends_after_a_line(&machine, "completions bash"), 0);
    for name in ["shop", "talk"] {
        let _ = machine.ask(&["rm", name, "--wait"]);
    }
}
