//! Error files are read at the start and again by each reload, under load: no response is lost, and each is one version of its file.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{config, connect, exchange, free_address, origin};
use crate::support::Proxy;

/// Changes of the files.
const CHANGES: usize = 12;

/// Where each file is used, and what it has in it.
const PAGES: [(&str, &str); 4] = [("/file", "file"), ("/section", "section"), ("/raw", "raw"), ("/format", "format")];

fn write(folder: &Path, version: usize) {
    for (_, name) in PAGES {
        // Of each version another length, so that a mixture of two cannot pass.
        let body = format!("{name}-{version}-{}", "x".repeat(version * 37));
        let page = match name {
            "file" | "section" => format!("HTTP/1.1 403 V{version}\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
            _ => body,
        };
        let beside = folder.join(format!("{name}.new"));
        std::fs::write(&beside, page).expect("the folder is ours");
        std::fs::rename(&beside, folder.join(name)).expect("the folder is ours");
    }
}

/// The version of a page, which must be whole.
fn version(name: &str, answer: &str) -> usize {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    assert!(head.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(
        head.contains(&format!("content-length: {}\r\n", body.len()))
            || head.ends_with(&format!("content-length: {}", body.len())),
        "{answer}"
    );
    let mut parts = body.splitn(3, '-');
    assert_eq!(parts.next(), Some(name), "{answer}");
    let version = parts.next().and_then(|text| text.parse().ok()).expect("a version");
    assert_eq!(parts.next().map(str::len), Some(version * 37), "{answer}");
    version
}

/// Asks for all pages until told to stop, on one connection or on a new one each time.
fn ask(web: SocketAddr, kept: bool, stop: &AtomicBool, served: &AtomicUsize) {
    let mut stream = connect(web);
    let mut last = [0_usize; PAGES.len()];
    while !stop.load(Ordering::Relaxed) {
        for (nth, (target, name)) in PAGES.into_iter().enumerate() {
            let answer = exchange(&mut stream, target, if kept { "keep-alive" } else { "close" });
            let version = version(name, &answer.expect("a reload closes no connection"));
            // Each core takes the next configuration up on its own: another connection may meet one that is about to.
            let oldest = if kept { last[nth] } else { last[nth].saturating_sub(1) };
            assert!(version >= oldest, "{name}: {version} after {}", last[nth]);
            last[nth] = last[nth].max(version);
            served.fetch_add(1, Ordering::Relaxed);
            if !kept {
                stream = connect(web);
            }
        }
    }
}

#[test]
fn a_reload_reads_error_files_again_and_loses_no_response() {
    let origin = origin();
    let web = free_address();
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), 0);
    let dir = folder.path().display();
    let more = format!(
        " errorfile 403 {dir}/file\n http-error status 429 content-type text/plain lf-file {dir}/format\n \
         http-request deny if {{ path /file }}\n http-request deny errorfiles e if {{ path /section }}\n \
         http-request return status 403 content-type text/plain file {dir}/raw if {{ path /raw }}\n \
         http-request deny deny_status 429 if {{ path /format }}\n http-after-response set-status 403 if {{ status 429 }}\n"
    );
    let text =
        format!("http-errors e\n errorfile 403 {dir}/section\n{}", config(&[web.to_string()], origin.address(), &more));
    let proxy = Proxy::start(&text);
    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for kept in [true, true, false] {
            let (stop, served) = (&stop, &served);
            scope.spawn(move || {
                // Whatever fails here ends the test, not only its thread.
                let result = std::panic::catch_unwind(|| ask(web, kept, stop, served));
                stop.store(true, Ordering::Relaxed);
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        }
        let mut kept = connect(web);
        for change in 1..=CHANGES {
            let before = served.load(Ordering::Relaxed);
            write(folder.path(), change);
            let outcome = proxy.reload();
            assert!(outcome.accepted, "{outcome:?}");
            for (target, name) in PAGES {
                let answer = exchange(&mut kept, target, "keep-alive").expect("the connection stays");
                assert_eq!(version(name, &answer), change, "{target}");
            }
            crate::support::until("requests are served meanwhile", || {
                served.load(Ordering::Relaxed) > before || stop.load(Ordering::Relaxed)
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A file that became invalid refuses the reload, and what was read stays.
    std::fs::write(folder.path().join("section"), "no response").expect("the folder is ours");
    assert!(!proxy.reload().accepted);
    let answer = exchange(&mut connect(web), "/section", "close").expect("it is served");
    assert_eq!(version("section", &answer), CHANGES);
}
