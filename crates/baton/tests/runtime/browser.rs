//! A real browser: Chromium without a screen, driven by its DevTools protocol over a WebSocket.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::PATIENCE;

/// One browser; ended when dropped.
pub struct Browser {
    child: Child,
    socket: TcpStream,
    last: u64,
    _folder: TempDir,
}

/// One page of it.
pub struct Tab {
    session: String,
}

impl Browser {
    /// Starts one.
    #[track_caller]
    pub fn start() -> Browser {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut child = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--disable-background-networking", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("chromium is installed by scripts/setup test");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix("DevTools listening on ws://").map(str::to_owned));
        let url = url.expect("chromium says where it listens");
        // What else it says is read and dropped, so that it never waits.
        std::thread::spawn(move || lines.for_each(drop));
        let (address, path) = url.split_once('/').expect("an address and a path");
        let mut socket = TcpStream::connect(address).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).expect("it reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("a whole head");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        Browser { child, socket, last: 0, _folder: folder }
    }

    /// Opens a page, which sends these header fields with each request.
    #[track_caller]
    pub fn open(&mut self, url: &str, fields: &Value) -> Tab {
        let target = self.ask(None, "Target.createTarget", json!({ "url": "about:blank" }));
        let about = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.ask(None, "Target.attachToTarget", about)["sessionId"].as_str().expect("an id").to_owned();
        let tab = Tab { session };
        self.on(&tab, "Page.enable", json!({}));
        self.on(&tab, "Network.enable", json!({}));
        // It is drawn, whichever page is in front.
        self.on(&tab, "Page.bringToFront", json!({}));
        self.on(&tab, "Emulation.setFocusEmulationEnabled", json!({ "enabled": true }));
        self.on(&tab, "Network.setExtraHTTPHeaders", json!({ "headers": fields }));
        self.go(&tab, url);
        tab
    }

    /// Goes to another page.
    #[track_caller]
    pub fn go(&mut self, tab: &Tab, url: &str) {
        let gone = self.on(tab, "Page.navigate", json!({ "url": url }));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.until(tab, "document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The size of its window, and whether the user wants it dark.
    pub fn look(&mut self, tab: &Tab, (width, height): (u32, u32), is_dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.on(tab, "Emulation.setDeviceMetricsOverride", size);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.on(tab, "Emulation.setEmulatedMedia", features);
    }

    /// The value of an expression, which may be a promise.
    #[track_caller]
    pub fn value(&mut self, tab: &Tab, expression: &str) -> Value {
        let about = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut result = self.on(tab, "Runtime.evaluate", about);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression is true.
    #[track_caller]
    pub fn until(&mut self, tab: &Tab, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.value(tab, expression) != true {
            if Instant::now() > end {
                let text = self.value(tab, "document.body.innerText");
                panic!("not within {PATIENCE:?}: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Writes what it looks like to a file.
    #[track_caller]
    pub fn picture(&mut self, tab: &Tab, file: &Path) {
        let picture = self.on(tab, "Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = STANDARD.decode(picture["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(file, bytes).expect("the folder is there");
    }

    #[track_caller]
    fn on(&mut self, tab: &Tab, method: &str, about: Value) -> Value {
        self.ask(Some(&tab.session), method, about)
    }

    #[track_caller]
    fn ask(&mut self, session: Option<&str>, method: &str, about: Value) -> Value {
        self.last += 1;
        let mut command = json!({ "id": self.last, "method": method, "params": about });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        self.send(command.to_string().as_bytes());
        loop {
            let mut message: Value = serde_json::from_slice(&self.receive()).expect("JSON");
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
        }
    }

    /// One text frame, masked with zeros (RFC 6455 5.3).
    fn send(&mut self, text: &[u8]) {
        let mut frame = vec![0x81, 0x80 | 127];
        frame.extend_from_slice(&(text.len() as u64).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.extend_from_slice(text);
        self.socket.write_all(&frame).expect("the browser lives");
    }

    /// One message, of as many frames as it has.
    fn receive(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        loop {
            let mut head = [0; 2];
            self.socket.read_exact(&mut head).expect("the browser lives");
            let length = match head[1] & 0x7f {
                126 => u64::from(u16::from_be_bytes(self.bytes())),
                127 => u64::from_be_bytes(self.bytes()),
                short => u64::from(short),
            };
            let at = message.len();
            message.resize(at + usize::try_from(length).expect("it fits"), 0);
            self.socket.read_exact(&mut message[at..]).expect("the browser lives");
            if head[0] & 0x80 != 0 {
                return message;
            }
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.socket.read_exact(&mut bytes).expect("the browser lives");
        bytes
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
