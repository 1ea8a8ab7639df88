//! The command line: what is wrong is named with its reason and a remedy, and nothing is sent; what the JSON promises.

use serde_json::{Value, json};

use super::nginx::Nginx;
use super::{file, load, load_json};

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_sent() {
    let nginx = Nginx::start("");
    let folder = nginx.folder.path().display().to_string();
    let url = nginx.url("/");
    let before = nginx.seen();
    let check = |line: &str, expect: &str| {
        let words: Vec<&str> = line.split_whitespace().map(|word| if word == "URL" { &url } else { word }).collect();
        let said = load(&words);
        assert!(said.code == Some(2) && said.out.is_empty() && said.err.contains(expect), "{line}: {said:?}");
    };
    check("", "<URL>");
    check("ftp://h/", "expected http, https, ws, wss or tcp");
    check("URL http://::1/", "an IPv6 address needs brackets, as in [::1]:80");
    check("URL http://no-such-host.invalid/", "http://no-such-host.invalid/: cannot resolve the name");
    check("-n 0 URL", "'--requests <N>': it must be at least 1");
    check("-n x URL", "expected a whole number, such as 500, 10k or 1M");
    check("-t 5d URL", "the unit must be us, ms, s, m or h");
    check("-c 100k URL", "-c: the maximum is 65536");
    check("--rate 0 URL", "expected a number above 0, such as 0.5, 1000 or 10k");
    check("--rate 1000M URL", "the rate must be between");
    check("--threads 0 URL", "the number of threads must be between 1 and 256");
    check("-H broken URL", "expected 'Name: value'");
    check("-i -m GET URL", "cannot be used with");
    check("-T a/b URL", "set one with -p or -u");
    check("-p /no/such URL", "cannot read /no/such: No such file");
    check("-p a -u b URL", "cannot be used with");
    check("--expect-status 99 URL", "a status from 200 to 599");
    check("--expect-body /no/such URL", "--expect-body: cannot read /no/such");
    check("--series /no/such/file URL", "cannot write /no/such/file");
    check("--json=/no/such/file URL", "cannot write /no/such/file");
    check("-f SSL3 URL", "TLS1.2, TLS1.3 or ALL");
    check("-f TLS1.1 URL", "RFC 8996");
    check("--ca-file /no/such https://127.0.0.1:1/", "/no/such");
    check("-B 192.0.2.1 URL", "cannot connect from 192.0.2.1");
    check("-n 5 tcp://127.0.0.1:1", "there are none; set a duration with -t");
    check("--series x tcp://127.0.0.1:1", "--series applies to http://");
    check("tcp://127.0.0.1", "tcp:// needs a port");
    check("--message-bytes 2M -t 1 tcp://127.0.0.1:1", "a message must have between 1 and 1048576 bytes");
    check("-X proxy:80 URL", "use the proxy's address as the URL");
    check("-w URL", "ab's -w is not supported: use --json");
    check("-g out URL", "use --series FILE");
    check("-t4 -c10 -d30s URL", "for wrk's -t N use --threads N");
    check("-n 5 -q 10 URL", "for hey's -q N");
    check("-s report.lua URL", "wrk's scripts are not supported");
    check("-z 5s -h2 URL", "HTTP/2 is not supported yet");
    check("-D body URL", "hey's -D is not supported: use -p FILE");
    check("--same-length -l URL", "cannot be used with");
    let huge = file(nginx.folder.path(), "huge", "");
    std::fs::File::options().write(true).open(&huge).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    check(&format!("-p {folder}/huge URL"), "the maximum is 268435456");
    assert_eq!(nginx.seen().1 - before.1, 1, "nothing but the question itself");
}

#[test]
fn the_json_has_the_fields_it_promises() {
    let nginx = Nginx::start(r#"location /a { return 200 "a"; }"#);
    let result = load_json(&format!("-n 10 -c 2 -k {}", nginx.url("/a"))).json();
    for name in ["requests", "completed", "failed", "connections", "closed_idle", "unsent", "body_bytes"] {
        assert!(result[name].is_u64(), "{name}: {result}");
    }
    for name in ["seconds", "requests_per_second", "cpu_seconds"] {
        assert!(result[name].is_f64(), "{name}: {result}");
    }
    let latency = &result["latency_us"];
    let values =
        ["p50", "p90", "p99", "p999", "p9999", "p99999", "max"].map(|name| latency[name].as_u64().expect(name));
    assert!(values.is_sorted() && latency["count"] == 10 && latency["mean"].is_u64(), "{result}");
    let kinds: Vec<&String> = result["failures"].as_object().expect("an object").keys().collect();
    let all = baton_prove::FailureKind::ALL.map(baton_prove::FailureKind::name);
    assert!(kinds.len() == all.len() && all.iter().all(|kind| result["failures"][kind] == 0), "{result}");
    assert_eq!((&result["clean"], &result["interrupted"]), (&true.into(), &false.into()));
    assert_eq!(result["sessions"], Value::Array(Vec::new()));
    assert_eq!(
        result["options"],
        json!({ "concurrency": 2, "keep_alive": true, "streams": null, "threads": 1, "rate": null })
    );
}

#[test]
fn text_goes_out_json_into_a_file_and_progress_to_standard_error() {
    let nginx = Nginx::start(r#"location /a { return 200 "a"; }"#);
    let json = nginx.folder.path().join("result");
    let to_file = format!("--json={}", json.display());
    let url = nginx.url("/a");
    let said = load(&["-n", "500", "--rate", "1000", "-k", &to_file, &url]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for words in [&url, "1000 requests per second", "500 completed", "p99.999", "Nothing failed."] {
        assert!(said.out.contains(words), "{words}: {said:?}");
    }
    assert!(
        said.err.contains(" requests/s, ") && said.err.contains(" 0 failed") && !said.err.contains('\x1b'),
        "{said:?}"
    );
    let result: Value = serde_json::from_slice(&std::fs::read(json).expect("it was written")).expect("it is JSON");
    assert_eq!(result["requests"], 500);
    assert_eq!(load(&["-q", "-n", "50", "-r", &url]).err, "");
}

#[test]
fn help_shows_examples_and_hides_what_is_only_refused() {
    let said = load(&["--help"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert!(
        said.out.contains("baton load -n 100k -c 100 -k http://localhost:8080/") && !said.out.contains("-X"),
        "{said:?}"
    );
}
