//! The statistics page: what scripts read of it, who may see and change what, and what a real browser makes of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use baton_prove::{Origin, OriginOptions};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::peers::{socat, socat_at};
use crate::support::haproxy::Haproxy;
use crate::support::{PATIENCE, Proxy, free_address, until};
use crate::table::{cell, table};

/// The response to one request on a connection of its own: head and body.
#[track_caller]
fn send(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer}"));
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (head.to_owned(), if is_chunked { joined(body) } else { body.to_owned() })
}

#[track_caller]
fn get(address: SocketAddr, target: &str, fields: &str) -> (String, String) {
    send(address, &format!("GET {target} HTTP/1.1\r\nHost: {address}\r\n{fields}Connection: close\r\n\r\n"))
}

#[track_caller]
fn post(address: SocketAddr, target: &str, fields: &str, body: &str) -> (String, String) {
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {address}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    send(address, &(head + body))
}

/// The bytes of chunks.
#[track_caller]
fn joined(mut chunks: &str) -> String {
    let mut out = String::new();
    loop {
        let (length, rest) = chunks.split_once("\r\n").expect("a chunk");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return out;
        }
        out.push_str(&rest[..length]);
        chunks = rest[length..].strip_prefix("\r\n").expect("the end of a chunk");
    }
}

fn location(head: &str) -> &str {
    head.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_default()
}

const TIMES: &str = " timeout connect 5s\n timeout client 30s\n timeout server 30s\n";

#[test]
fn scripts_read_the_table_of_haproxy_from_the_page() {
    let serving = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let origin = serving.address();
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder for the test"));
    let webs = [free_address(), free_address()];
    let config = |folder: &Path, web: SocketAddr| {
        format!(
            "global\n stats socket {}/admin.sock level admin\ndefaults\n mode http\n{TIMES}\
             listen web\n bind {web}\n stats uri /st\n stats refresh 7s\n server a {origin} cookie c\n server b {origin} disabled\n\
             backend other\n stats uri /o\n stats scope .\n stats show-legends\n server x {origin}\n\
             backend third\n server y {origin} backup\n",
            folder.display()
        )
    };
    let baton = Proxy::start(&config(folders[0].path(), webs[0]));
    let _haproxy = Haproxy::start(&config(folders[1].path(), webs[1]), &folders[1].path().join("admin.sock"));
    for target in [
        "/st;csv",
        "/st;csv;norefresh",
        "/st;csv;up",
        "/st;csv;no-maint",
        "/st;csv;scope=th",
        "/st;csv;scope=WEB",
        "/stx?y;csv",
    ] {
        let [(ours, own), (theirs, expected)] = webs.map(|web| get(web, target, ""));
        let named = |head: &str, name: &str| head.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        for field in ["HTTP/1.1", "content-type", "cache-control", "refresh"] {
            assert_eq!(named(&ours, field), named(&theirs, field), "{target}");
        }
        let shown = |csv: &str| -> Vec<String> {
            let line = |line: &str| line.splitn(3, ',').take(2).collect::<Vec<_>>().join(" ");
            csv.lines().map(line).collect()
        };
        assert_eq!(shown(&own), shown(&expected), "{target}");
        assert_eq!(own.lines().next(), expected.lines().next(), "{target}: the columns and their order");
        let (own, expected) = (table(&own), table(&expected));
        for ((proxy, name), row) in &expected {
            for column in ["status", "weight", "act", "bck", "type", "mode", "addr", "cookie", "algo"] {
                assert_eq!(cell(&own, proxy, name, column), row[column], "{target} {proxy}/{name} {column}");
            }
        }
    }
    let objects = |web: SocketAddr| -> Vec<Vec<(Value, Value)>> {
        let (head, body) = get(web, "/st;json", "");
        assert!(head.contains("content-type: application/json"), "{head}");
        let read: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let field = |field: &Value| (field["objType"].clone(), field["field"]["name"].clone());
        let rows = read.as_array().expect("a list").iter();
        rows.map(|row| row.as_array().expect("a list").iter().take(10).map(field).collect()).collect()
    };
    assert_eq!(objects(webs[0]), objects(webs[1]));
    // The schema is that of the command; haproxy's differs (`show schema json`).
    let (head, schema) = get(webs[0], "/st;json-schema", "");
    assert!(head.contains("content-type: application/json"), "{head}");
    assert_eq!(
        schema,
        socat(&folders[0].path().join("admin.sock"), "show schema json\n").trim_end_matches('\n').to_owned() + "\n"
    );
    assert!(get(webs[1], "/st;json-schema", "").0.contains("content-type: application/json"));
    // A command and the page print the same table.
    let command = socat(&folders[0].path().join("admin.sock"), "show stat\n");
    let names = |csv: &str| table(csv).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&get(webs[0], "/st;csv", "").1), names(&command));
    drop(baton);
}

/// Who sends what to which page, and what becomes of it.
#[test]
fn who_may_see_and_change_what() {
    let web = free_address();
    let _proxy = Proxy::start(&format!(
        "defaults\n mode http\n{TIMES}\
         frontend f\n bind {web}\n use_backend open if {{ path_beg /open }}\n use_backend closed if {{ path_beg /closed }}\n \
         use_backend ruled if {{ path_beg /ruled }}\n use_backend scoped if {{ path_beg /scoped }}\n default_backend none\n\
         backend none\n server s 127.0.0.1:9\n\
         backend open\n stats uri /open\n server s 127.0.0.1:9\n\
         backend closed\n stats uri /closed\n stats auth a:b\n stats admin if TRUE\n server s 127.0.0.1:9\n\
         backend ruled\n stats uri /ruled\n stats http-request deny unless {{ src 127.0.0.1 }}\n stats http-request deny if {{ hdr(x-not) -m found }}\n \
         stats admin if {{ hdr(x-admin) -m found }}\n server s 127.0.0.1:9\n\
         backend scoped\n stats uri /scoped\n stats scope .\n stats admin if TRUE\n server s 127.0.0.1:9\n"
    ));
    let known = "Authorization: Basic YTpi\r\n";
    let check = |target: &str, fields: &str, expect: &str| {
        let (head, _) = get(web, target, fields);
        assert_eq!(head.split(' ').nth(1), Some(expect), "{target} {fields}: {head}");
    };
    for resource in ["", ";csv", ";json", ";page.js", ";page.css"] {
        check(&format!("/open{resource}"), "", "200");
        check(&format!("/closed{resource}"), "", "401");
        check(&format!("/closed{resource}"), "Authorization: Basic YTpj\r\n", "401");
        check(&format!("/closed{resource}"), known, "200");
        check(&format!("/ruled{resource}"), "", "200");
        check(&format!("/ruled{resource}"), "X-Not: 1\r\n", "403");
    }
    check("/closed;events", "", "401");
    check("/ruled;events", "X-Not: 1\r\n", "403");
    let change = |target: &str, fields: &str, backend: &str, expect: &str| {
        let (head, _) = post(web, target, fields, &format!("s=s&action=maint&b={backend}"));
        let outcome = match head.split(' ').nth(1) {
            Some("303") => location(&head).split_once(";st=").map_or("", |(_, word)| word).to_owned(),
            status => status.unwrap_or_default().to_owned(),
        };
        assert_eq!(outcome, expect, "{target} {fields}: {head}");
    };
    change("/open", "", "open", "DENY");
    change("/closed", "", "closed", "401");
    change("/closed", known, "closed", "DONE");
    change("/closed", known, "open", "DONE");
    change("/ruled", "", "ruled", "DENY");
    change("/ruled", "X-Admin: 1\r\n", "ruled", "DONE");
    change("/scoped", "", "scoped", "DONE");
    change("/scoped", "", "open", "ERRP");
    // A browser says which page makes a request.
    let origin = format!("Origin: http://{web}\r\n");
    change("/closed", &format!("{known}{origin}"), "closed", "DONE");
    change("/closed", &format!("{known}Sec-Fetch-Site: same-origin\r\n"), "closed", "DONE");
    for foreign in
        ["Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Referer: http://evil.example/"]
    {
        change("/closed", &format!("{known}{foreign}\r\n"), "closed", "403");
    }
    change("/closed", &format!("{known}{origin}Sec-Fetch-Site: cross-site\r\n"), "closed", "403");
}

/// A stream of events.
struct Stream(TcpStream, Vec<u8>);

impl Stream {
    #[track_caller]
    fn open(address: SocketAddr, target: &str) -> Stream {
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        write!(stream, "GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it reads");
        Stream(stream, Vec::new())
    }

    /// Reads until this text comes; false when the stream ends before.
    fn has(&mut self, text: &str) -> bool {
        let mut room = [0; 4096];
        loop {
            if self.1.windows(text.len()).any(|part| part == text.as_bytes()) {
                return true;
            }
            match self.0.read(&mut room) {
                Ok(count @ 1..) => self.1.extend_from_slice(&room[..count]),
                Ok(0) | Err(_) => return false,
            }
        }
    }
}

#[test]
fn a_stream_of_events_is_live_and_ends_with_its_page_and_its_process() {
    let web = free_address();
    let config = |rest: &str| {
        format!("defaults\n mode http\n{TIMES}listen web\n bind {web}\n stats uri /st\n server a 127.0.0.1:9\n{rest}")
    };
    let proxy = Proxy::start(&config(""));
    let mut stream = Stream::open(web, "/st;events");
    assert!(stream.has("event: process") && stream.has("\"proxy\":\"web\"") && stream.has("event: round"));
    proxy.change(&config("backend later\n server b 127.0.0.1:9\n"));
    assert!(stream.has("\"proxy\":\"later\"") && stream.has("backend later"), "an object, and the change");
    proxy.change(&config(""));
    assert!(stream.has("event: gone"));
    // Who may see it is another question.
    proxy.change(&config(" stats auth a:b\n").replace("server a 127.0.0.1:9\n stats", "stats"));
    assert!(stream.has("event: bye") && stream.has("\r\n0\r\n\r\n"), "the end of the body");
    let proxy = {
        drop(proxy);
        Proxy::start(&config(""))
    };
    let mut stream = Stream::open(web, "/st;events");
    assert!(stream.has("event: round"));
    proxy.signal(Signal::SIGUSR1);
    assert!(stream.has("event: bye"));
    drop(stream);
    let (status, said) = proxy.wait();
    assert!(status.success(), "{said}");
}

#[test]
fn streams_are_limited_and_a_reader_that_does_not_read_delays_nobody() {
    let web = free_address();
    let servers: String = (0..5000).map(|number| format!(" server s{number} 127.0.0.1:9\n")).collect();
    let _proxy = Proxy::start(&format!(
        "defaults\n mode http\n{TIMES}listen web\n bind {web}\n stats uri /st\nbackend many\n{servers}"
    ));
    // Tables and streams that nobody reads: what they wait with is a piece each.
    let asleep: Vec<Stream> = ["/st;csv", "/st;json", "/st;events"]
        .into_iter()
        .flat_map(|target| (0..8).map(move |_| Stream::open(web, target)))
        .collect();
    let (_, csv) = get(web, "/st;csv", "");
    assert_eq!(table(&csv).len(), 5000 + 3, "every server, the frontend, two backends");
    let mut live: Vec<Stream> = (0..24).map(|_| Stream::open(web, "/st;events")).collect();
    for stream in &mut live {
        assert!(stream.has("event: process"));
    }
    let (head, _) = get(web, "/st;events", "");
    assert!(head.starts_with("HTTP/1.1 503"), "one more than there may be: {head}");
    drop((asleep, live));
    until("there is room again", || {
        let mut stream = Stream::open(web, "/st;events");
        stream.has("HTTP/1.1 ") && stream.has("\r\n\r\n") && stream.1.starts_with(b"HTTP/1.1 200")
    });
}

#[test]
fn a_page_and_its_changes_outlive_a_takeover() {
    let web = free_address();
    let proxy = Proxy::start(&format!(
        "defaults\n mode http\n{TIMES}listen web\n bind {web}\n stats uri /st\n stats admin if TRUE\n server a 127.0.0.1:9\n"
    ));
    let (head, _) = post(web, "/st", "", "s=a&action=drain&b=web");
    assert_eq!(location(&head), "/st;st=DONE");
    // A request that is not complete keeps the process before alive.
    let mut slow = TcpStream::connect(web).expect("it listens");
    slow.write_all(b"GET /st;csv HTTP/1.1\r\nHost: x\r\n").expect("it reads");
    until("its connection is open", || proxy.status().connections == 1);
    let next = proxy.replace(&[]);
    let mut stream = Stream::open(web, "/st;events");
    assert!(stream.has(&format!("\"older\":[{{\"connections\":1,\"pid\":{}}}]", proxy.pid())));
    slow.write_all(b"Connection: close\r\n\r\n").expect("it reads");
    let mut last = String::new();
    slow.read_to_string(&mut last).expect("a response");
    assert!(last.starts_with("HTTP/1.1 200") && last.contains("web,FRONTEND"), "{last}");
    assert!(stream.has("\"older\":[]"), "it has ended");
    let status = || cell(&table(&get(web, "/st;csv", "").1), "web", "a", "status").to_owned();
    assert_eq!(status(), "DRAIN", "what was set goes on");
    let (head, _) = post(web, "/st", "", "s=a&action=ready&b=web");
    assert_eq!((location(&head), &*status()), ("/st;st=DONE", "no check"));
    drop((proxy, next));
}

/// An origin whose health check fails with this text.
fn failing(text: &'static str, is_over: Arc<AtomicBool>) -> SocketAddr {
    let listening = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listening.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listening.incoming() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let Ok(mut stream) = stream else { continue };
            let _ = stream.read(&mut [0; 1024]);
            let _ = write!(stream, "HTTP/1.0 500 {text}\r\nContent-Length: 0\r\n\r\n");
        }
    });
    address
}

const MARKUP: &str = "<img src=x onerror=\"window.harmed=1\"><script>window.harmed=1</script>";

#[test]
fn a_real_browser_shows_the_page_live_and_nothing_harms_it() {
    let serving = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let origin = serving.address();
    let (web, foreign) = (free_address(), free_address());
    let is_over = Arc::new(AtomicBool::new(false));
    let failing = failing(MARKUP, is_over.clone());
    let form = format!(
        "<form id=f method=post action=http://{web}/st><input name=s value=a><input name=action value=maint><input name=b value=app></form><p>foreign</p>"
    );
    let folder = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(folder.path().join("foreign.html"), form).expect("the folder is ours");
    let socket = folder.path().join("admin.sock");
    let config = |rest: &str| {
        format!(
            "global\n node lb-1\n description \"{quoted}\"\n stats socket {socket} level admin\n\
             defaults\n mode http\n{TIMES}\
             frontend web\n bind {web}\n description \"Shop {quoted}\"\n stats uri /st\n stats auth admin:pass\n stats auth \"{name}:x\"\n \
             stats admin if TRUE\n stats show-node\n stats show-desc\n stats show-legends\n stats show-modules\n option socket-stats\n default_backend app\n\
             frontend foreign\n bind {foreign}\n http-request return status 200 content-type text/html file {page}\n\
             backend app\n option httpchk\n http-check expect status 200\n server a {origin} check inter 100ms cookie one\n server b {origin} cookie two weight 3\n \
             server sick {failing} check inter 100ms fall 1\n server gone 127.0.0.1:9 check inter 100ms fall 1 backup\n\
             backend dead\n server x 127.0.0.1:9 check inter 100ms fall 1\n{rest}",
            quoted = MARKUP.replace('"', "\\\""),
            name = "<b>eve</b>",
            socket = socket.display(),
            page = folder.path().join("foreign.html").display(),
        )
    };
    let proxy = Proxy::start(&config(""));
    let mut browser = Browser::start();
    let url = format!("http://{web}/st");
    let known = json!({ "Authorization": "Basic YWRtaW46cGFzcw==" });
    let tab = browser.open(&format!("{url};st=DONE"), &known);

    // It fills itself, says why servers are down, and that the last change was made.
    browser.until(&tab, "document.querySelectorAll('article.proxy').length === 4");
    let row = |name: &str| {
        format!(
            "([...document.querySelectorAll('tr')].find((row) => row.textContent.includes('{name}'))?.textContent ?? '')"
        )
    };
    browser.until(&tab, &format!("{{ const text = {}; /DOWN/.test(text) && /L7STS 500/.test(text) }}", row("sick")));
    browser.until(
        &tab,
        &format!("{{ const text = {}; /DOWN/.test(text) && /L4CON/.test(text) && /since/.test(text) }}", row("gone")),
    );
    browser.until(&tab, "document.querySelector('#verdict').textContent === 'down'");
    browser.until(&tab, "document.querySelector('#problems').textContent.includes('backend dead has no server')");
    browser.until(&tab, "document.querySelector('#notice').textContent === 'The servers were changed.'");
    assert_eq!(browser.value(&tab, "document.querySelector('#node').textContent"), "lb-1");

    // What `show-legends`, `show-modules` and `option socket-stats` add.
    let card = "document.querySelector('[data-proxy=web]').textContent";
    browser.until(
        &tab,
        &format!("/#2/.test({card}) && /TLS: 0 sessions/.test({card}) && /socket sock-1 .*OPEN/.test({card})"),
    );

    // It is live: requests, a reload and an operator's command show without a reload of the page.
    browser.value(&tab, "window.isSame = true");
    for _ in 0..25 {
        let (head, _) = get(web, "/", "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    let requests = "[...document.querySelectorAll('[data-proxy=web] .figure')].find((one) => one.textContent.endsWith('requests')).firstChild.textContent";
    browser.until(&tab, &format!("Number({requests}) >= 25"));
    browser.until(&tab, "document.querySelector('[data-proxy=web] svg.rate path').getAttribute('d')?.length > 10");
    proxy.change(&config("backend later\n server z 127.0.0.1:9\n"));
    browser.until(&tab, "document.querySelector('[data-proxy=later]') !== null");
    browser.until(&tab, "document.querySelector('#changes').textContent.includes('backend later')");
    let refused = proxy.change_refused(&config(&format!("backend {}\n", "<i>odd</i>")));
    assert!(refused.contains("not permitted"), "{refused}");
    browser.until(&tab, "document.querySelector('#changes').textContent.includes('refused')");
    assert_eq!(socat(&socket, "set server app/b weight 7\n").trim(), "");
    browser
        .until(&tab, &format!("/weight 7 \\(file: 3\\)/.test({})", row("b backup").replace("b backup", "cookie two")));
    assert_eq!(browser.value(&tab, "window.isSame"), true, "the page was not loaded again");

    // An action: two clicks and a choice.
    let choose = "(() => {
        const card = document.querySelector('[data-proxy=app]');
        [...card.querySelectorAll('tbody tr')].find((row) => row.textContent.includes('cookie one')).querySelector('input').click();
        card.querySelector('select').value = 'drain';
        card.querySelector('button').click();
    })()";
    browser.value(&tab, "document.querySelector('#notice').textContent = ''");
    browser.value(&tab, choose);
    browser.until(&tab, "document.querySelector('#notice').textContent === 'The servers were changed.'");
    browser.until(&tab, &format!("/DRAIN/.test({})", row("cookie one")));
    let state = |name: &str| cell(&table(&socat(&socket, "show stat\n")), "app", name, "status").to_owned();
    assert_eq!(state("a"), "DRAIN");
    browser.until(&tab, &format!("/the statistics page of web as admin/.test({})", row("cookie one")));
    assert_eq!(socat(&socket, "set server app/a state ready\n").trim(), "");

    // Names, texts, headers and cookies are text. So are those of a user.
    let visible = |browser: &mut Browser, tab: &crate::browser::Tab| {
        browser.until(tab, "document.body.innerText.includes('<img src=x')");
        assert_eq!(
            browser.value(
                tab,
                "window.harmed === undefined && !document.querySelector('main img, header img, main script')"
            ),
            true
        );
    };
    visible(&mut browser, &tab);
    let eve = json!({ "Authorization": "Basic PGI+ZXZlPC9iPjp4", "Cookie": MARKUP, "X-Forwarded-For": MARKUP });
    let other = browser
        .open(&format!("{url};st=<script>window.harmed=1</script>;scope=<script>window.harmed=1</script>"), &eve);
    browser.until(&other, "document.querySelector('#link').textContent === 'live'");
    assert_eq!(browser.value(&other, "window.harmed === undefined"), true);
    let set = "fetch('/st', { method: 'POST', body: new URLSearchParams({ s: 'b', action: 'drain', b: 'app' }) }).then((r) => r.url)";
    assert_eq!(browser.value(&other, set), format!("{url};st=DONE"));
    browser.until(&tab, &format!("{}.includes('as <b>eve</b>')", row("cookie two")));
    visible(&mut browser, &tab);

    // What is inline does not run, whatever brings it.
    let inline = "new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective), { once: true });
        const script = document.createElement('script');
        script.textContent = 'window.harmed = 1';
        document.body.append(script);
    })";
    assert_eq!(browser.value(&other, inline), "script-src-elem");
    assert_eq!(browser.value(&other, "window.harmed === undefined"), true);

    // A page of another origin changes nothing, although the browser sends the password with its requests.
    let before = state("a");
    let evil = browser.open(&format!("http://{foreign}/"), &known);
    browser.value(&evil, "document.querySelector('#f').submit()");
    browser.until(&evil, "document.body.textContent.includes('refused')");
    let sent = format!(
        "fetch('{url}', {{ method: 'POST', mode: 'no-cors', credentials: 'include', body: new URLSearchParams({{ s: 'a', action: 'maint', b: 'app' }}) }}).then(() => true)"
    );
    let evil = browser.open(&format!("http://{foreign}/"), &known);
    assert_eq!(browser.value(&evil, &sent), true);
    assert_eq!(state("a"), before);

    if std::env::var_os("BATON_UPDATE").is_some() {
        pictures();
    }
    is_over.store(true, Ordering::Relaxed);
    let _ = TcpStream::connect(failing);
}

/// Pictures for the manual: a small web with everything that the page can show.
fn pictures() {
    let origins = ["one", "two"].map(|name| Origin::start(OriginOptions::new(name)).expect("loopback has a free port"));
    let [one, two] = origins.each_ref().map(|origin| origin.address());
    let (web, socket) = (free_address(), free_address());
    let config = |rest: &str| {
        format!(
            "global\n node lb-1\n description Europe, first site\n stats socket {socket} level admin\n\
             defaults\n mode http\n{TIMES}\
             frontend www\n bind {web}\n description The shop\n maxconn 2000\n stats uri /st\n stats admin if TRUE\n stats show-node\n stats show-desc\n \
             use_backend api if {{ path_beg /api }}\n default_backend shop\n\
             backend shop\n description Pages and pictures\n balance leastconn\n server shop-1 {one} check inter 500ms weight 100\n server shop-2 {two} check inter 500ms weight 100\n \
             server shop-3 127.0.0.1:9 check inter 500ms fall 1\n server spare {two} check inter 500ms backup\n\
             backend api\n server api-1 {one} check inter 500ms weight 50\n server api-2 {two} check inter 500ms weight 50\n{rest}"
        )
    };
    let proxy = Proxy::start(&config(""));
    proxy.change(&config("backend reports\n server r1 127.0.0.1:9 check inter 500ms fall 1\n"));
    let (head, _) = post(web, "/st", "", "s=shop-2&action=drain&b=shop");
    assert_eq!(location(&head), "/st;st=DONE");
    socat_at(&format!("TCP:{socket}"), "set weight api/api-1 20\n");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                number += 1;
                let _ = get(web, if number.is_multiple_of(3) { "/api/x" } else { "/" }, "");
                // A wave, so that there is something to see.
                let wave = 8.0 + 7.0 * (number as f64 / 160.0).sin();
                std::thread::sleep(std::time::Duration::from_millis(wave as u64));
            }
        });
        let mut browser = Browser::start();
        let tab = browser.open(&format!("http://{web}/st"), &json!({}));
        let has_points = "(document.querySelector('[data-proxy=shop] svg.rate path')?.getAttribute('d')?.split('L').length ?? 0) > 28";
        browser.look(&tab, (1180, 1250), false);
        browser.until(&tab, has_points);
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
        for (name, size, is_dark) in [
            ("statistics.png", (1180, 1250), false),
            ("statistics-dark.png", (1180, 1250), true),
            ("statistics-phone.png", (390, 1000), true),
        ] {
            browser.look(&tab, size, is_dark);
            browser.until(
                &tab,
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))",
            );
            browser.picture(&tab, &images.join(name));
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
