//! Clients as people use them.

use baton_prove::certificates::KeyKind;

use crate::tool::Tool;
use crate::world::{World, usual};

#[test]
fn curl_in_both_versions_and_with_both_kinds_of_keys() {
    for kind in [KeyKind::P256, KeyKind::P384, KeyKind::Rsa2048] {
        let mut world = World::start(kind, "crt FOLDER/a.pem alpn http/1.1");
        let shown = "%{http_code} %{http_version} %{size_download} %{ssl_verify_result}";
        for version in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
            let mut curl = world.curl("www.a.example", "/bytes/300000", &version);
            let said = curl.words(&["-o", "/dev/null", "-w", shown]).run();
            assert_eq!((said.code, said.out.as_str()), (Some(0), "200 1.1 300000 0"), "{kind:?} {version:?} {said:?}");
        }
        // By its address, which the certificate names too.
        let said = world.curl("127.0.0.1", "/bytes/5", &[]).run();
        assert_eq!((said.code, said.out.len()), (Some(0), 5), "{said:?}");
        world.serves();
    }
}

#[test]
fn curl_sends_as_well_as_it_receives() {
    let world = usual();
    let sent: String = (0..200_000).map(|number| format!("{number:08}\n")).collect();
    world.write("sent", &sent);
    let file = format!("@{}", world.at("sent").display());
    let said = world.curl("a.example", "/echo", &["--data-binary", &file]).run();
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out == sent, "{} bytes came back of {}", said.out.len(), sent.len());
}

#[test]
fn curl_refuses_a_name_that_the_certificate_has_not() {
    let world = usual();
    let said = world.curl("c.example", "/", &[]).run();
    assert_eq!(said.code, Some(60), "{said:?}");
}

#[test]
fn ab_with_a_connection_for_each_request_and_with_few() {
    let world = usual();
    for (version, keep) in [("TLS1.2", false), ("TLS1.3", false), ("TLS1.2", true), ("TLS1.3", true)] {
        let mut ab = Tool::new("ab", &["-q", "-n", "200", "-c", "10", "-f", version]);
        if keep {
            ab.word("-k");
        }
        let said = ab.word(world.url("127.0.0.1", "/bytes/2000")).run();
        said.says(&[
            "Complete requests:      200",
            "Failed requests:        0",
            "HTML transferred:       400000 bytes",
        ]);
        assert!(!said.out.contains("Non-2xx"), "{version} {keep}: {said:?}");
    }
}

#[test]
fn h2load_speaks_http1_over_tls() {
    let world = usual();
    let mut h2load = Tool::new("h2load", &["--h1", "-n", "500", "-c", "10"]);
    let said = h2load.word(world.url("127.0.0.1", "/bytes/1000")).run();
    said.says(&["500 succeeded, 0 failed, 0 errored", "status codes: 500 2xx"]);
}

#[test]
fn wrk_finds_no_error() {
    let world = usual();
    let said = Tool::new("wrk", &["-t", "1", "-c", "10", "-d", "1s"]).word(world.url("127.0.0.1", "/bytes/1000")).run();
    said.says(&["requests in"]);
    assert!(!said.out.contains("Socket errors") && !said.out.contains("Non-2xx"), "{said:?}");
}

#[test]
fn python_checks_resumes_and_reads_to_the_end() {
    let world = usual();
    let mut python = Tool::new("python3", &["-"]);
    let said =
        python.word(world.at("ca.pem")).word(world.web.port().to_string()).input(include_str!("client.py")).run();
    said.says(&["TLSv1.2 full 200 100000", "TLSv1.2 resumed 200 100000", "TLSv1.3 full 200 100000"]);
    said.says(&["TLSv1.3 resumed 200 100000", "a.example", "close_notify"]);
}

#[test]
fn java_asks_many_times_and_at_the_same_time() {
    let world = usual();
    world.write("Client.java", include_str!("Client.java"));
    // Its machine takes half of a machine's memory otherwise.
    let mut java = Tool::new("java", &["-Xmx128m", "-XX:TieredStopAtLevel=1"]);
    let said = java.word(world.at("Client.java")).word(world.at("ca.pem")).word(world.url("127.0.0.1", "")).run();
    said.says(&["40 answers of 5000 bytes", "TLSv1.2 200", "TLSv1.3 200"]);
}

#[test]
fn a_browser_shows_the_page() {
    let world = usual();
    let profile = format!("--user-data-dir={}", world.at("profile").display());
    let mut chromium = Tool::new(
        "chromium",
        &["--headless", "--no-sandbox", "--disable-gpu", "--ignore-certificate-errors", "--disable-dev-shm-usage"],
    );
    let said = chromium.word(profile).word("--dump-dom").word(world.url("127.0.0.1", "/some/page")).run();
    said.says(&["/some/page"]);
}
