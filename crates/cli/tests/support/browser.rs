//! A real browser, driven over the protocol of `chromedriver`.
//!
//! Owns: one browser with a profile of its own, and asking it what is on the page.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// Keys in the `WebDriver` encoding.
pub(crate) const TAB: char = '\u{e004}';
pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const ESCAPE: char = '\u{e00c}';

pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let profile = tempfile::tempdir().unwrap();
        let folder = format!("--user-data-dir={}", profile.path().display());
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let patience = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < patience, "the driver does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        let arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,900",
            folder
        ]);
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let made = browser.call("POST", "/session", &wanted);
        made["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser
    }

    pub(crate) fn open(&self, url: &str) {
        self.tell("url", &json!({ "url": url }));
    }

    /// The result of a script.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.tell("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The visible text of the page.
    pub(crate) fn words(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page contains a text, without reloading it.
    pub(crate) fn sees(&self, text: &str) {
        let patience = Instant::now() + Duration::from_secs(30);
        loop {
            let words = self.words();
            if words.contains(text) {
                return;
            }
            assert!(Instant::now() < patience, "never on the page: `{text}`; there is:\n{words}");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Clicks the element with this text.
    pub(crate) fn click(&self, what: &str, text: &str) {
        let path = format!("//{what}[normalize-space()='{text}']");
        let patience = Instant::now() + Duration::from_secs(10);
        loop {
            let found = self.try_tell("element", &json!({ "using": "xpath", "value": path }));
            let element = found.as_ref().ok().and_then(|found| found.as_object()?.values().next()?.as_str());
            // The page may be redrawn in between, and the element found is then stale.
            if let Some(element) = element
                && self.try_tell(&format!("element/{element}/click"), &json!({})).is_ok()
            {
                return;
            }
            assert!(Instant::now() < patience, "nothing to click: {what} `{text}`; there is:\n{}", self.words());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends a key to the focused element.
    pub(crate) fn press(&self, key: char) {
        let strokes = json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        self.tell("actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] }));
    }

    /// Presses Tab until the element with this text has the focus.
    pub(crate) fn tab_to(&self, text: &str) {
        for _ in 0..60 {
            self.press(TAB);
            if self.run("return document.activeElement.textContent") == text {
                return;
            }
        }
        panic!("no key leads to `{text}`; there is:\n{}", self.words());
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        self.tell("window/rect", &json!({ "width": width, "height": height }));
    }

    /// Overrides the viewport size, whatever the window size.
    pub(crate) fn viewport(&self, width: u32, height: u32) {
        let screen = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.tell("goog/cdp/execute", &json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": screen }));
    }

    pub(crate) fn scheme(&self, scheme: &str) {
        let feature = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": feature } });
        self.tell("goog/cdp/execute", &command);
    }

    /// Messages of the browser console since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.tell("se/log", &json!({ "type": "browser" }));
        log.as_array().unwrap().iter().map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    /// URLs requested since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = self.tell("se/log", &json!({ "type": "performance" }));
        let messages = log.as_array().unwrap().iter().filter_map(|entry| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().unwrap_or_default().to_owned())
        });
        messages.collect()
    }

    /// Saves a screenshot if `LONGSHORE_PICTURES` names a folder.
    pub(crate) fn picture(&self, name: &str) {
        let Ok(folder) = std::env::var("LONGSHORE_PICTURES") else { return };
        let answer = self.call("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        let bytes = decode(answer.as_str().unwrap());
        fs::write(Path::new(&folder).join(format!("{name}.png")), bytes).unwrap();
    }

    fn tell(&self, what: &str, body: &Value) -> Value {
        self.try_tell(what, body).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    fn try_tell(&self, what: &str, body: &Value) -> Result<Value, String> {
        self.try_call("POST", &format!("/session/{}/{what}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: ");
        write!(stream, "{head}{}\r\n\r\n{body}", body.len()).unwrap();
        let (head, body) = read_answer(&mut BufReader::new(stream));
        let value: Value = serde_json::from_slice(&body).map_err(|error| format!("{error}: {head}"))?;
        if head.starts_with("HTTP/1.1 200") {
            Ok(value["value"].clone())
        } else {
            Err(value["value"]["message"].to_string())
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.try_call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Reads one answer by its length, because the driver keeps the connection open.
fn read_answer(stream: &mut BufReader<TcpStream>) -> (String, Vec<u8>) {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "the driver hung up: {head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

/// Decodes the base64 of a screenshot.
fn decode(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for value in text.bytes().filter_map(digit) {
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).unwrap());
        }
    }
    bytes
}
