//! What rules see of an encrypted connection: every fetch in a header of the response, from Debian's haproxy and from Baton, to
//! the same clients. And what is made of it most: redirects to https, X-Forwarded-Proto, HSTS.

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use baton_prove::certificates::{Authority, CertificateSpec};
use support::haproxy::Haproxy;
use support::{Proxy, free_address};

/// Of HAProxy's, but for those that Baton refuses to have.
const FETCHES: &str = "ssl_fc ssl_fc_protocol ssl_fc_cipher ssl_fc_alg_keysize ssl_fc_use_keysize ssl_fc_alpn ssl_fc_npn \
    ssl_fc_sni ssl_fc_has_sni ssl_fc_has_crt ssl_fc_has_early ssl_fc_is_resumed ssl_fc_cipherlist_bin,hex \
    ssl_fc_cipherlist_bin(1),hex ssl_fc_cipherlist_hex ssl_fc_cipherlist_xxh ssl_fc_cipherlist_str ssl_fc_extlist_bin,hex \
    ssl_fc_extlist_bin(1),hex ssl_fc_eclist_bin,hex ssl_fc_ecformats_bin,hex ssl_fc_protocol_hello_id ssl_fc_err \
    ssl_fc_err_str ssl_c_used ssl_c_verify ssl_c_err ssl_c_ca_err ssl_c_ca_err_depth ssl_c_s_dn ssl_c_s_dn(CN) ssl_c_s_dn(cn) \
    ssl_c_s_dn(OU) ssl_c_s_dn(OU,0) ssl_c_s_dn(OU,1) ssl_c_s_dn(OU,2) ssl_c_s_dn(OU,-1) ssl_c_s_dn(OU,3) \
    ssl_c_s_dn(,0,rfc2253) ssl_c_s_dn(ST) ssl_c_s_dn(ST,1,rfc2253) ssl_c_s_dn(XX) ssl_c_s_dn(emailAddress) ssl_c_i_dn \
    ssl_c_i_dn(CN) ssl_c_serial,hex ssl_c_sha1,hex ssl_c_sig_alg ssl_c_key_alg ssl_c_notbefore ssl_c_notafter \
    ssl_c_version ssl_c_der,hex ssl_c_chain_der,hex ssl_f_s_dn ssl_f_i_dn ssl_f_serial,hex ssl_f_sha1,hex ssl_f_sig_alg \
    ssl_f_key_alg ssl_f_notbefore ssl_f_notafter ssl_f_version ssl_f_der,hex";

struct Files {
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let files = Files { folder, authority: Authority::new("Test").expect("keys can be made") };
        files.issue("server.pem", &CertificateSpec::server(["a.example"]));
        files.write("root.pem", &files.authority.root_pem());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the folder is ours");
    }

    fn issue(&self, name: &str, wanted: &CertificateSpec) {
        let issued = self.authority.issue(wanted).expect("the names are some");
        self.write(name, &issued.bundle_pem());
    }

    fn openssl(&self, args: &[&str]) {
        let run = Command::new("openssl").args(args).current_dir(self.folder.path()).output();
        let run = run.expect("openssl is installed by scripts/setup");
        assert!(run.status.success(), "{args:?}: {}", String::from_utf8_lossy(&run.stderr));
    }

    /// `NAME.pem`: a certificate of version 1 by `ca.pem`, whose name has everything, and its key.
    fn old(&self, name: &str, subject: &str, more: &[&str]) {
        if !self.path("ca.pem").exists() {
            let usual =
                ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", "/C=FR/O=Lab/CN=Lab CA"];
            self.openssl(&[&usual[..], &["-keyout", "ca.key", "-out", "ca.pem"]].concat());
        }
        let (key, request, crt) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        self.openssl(&[&["req", "-utf8", "-subj", subject, "-keyout", &key, "-out", &request], &ec[..]].concat());
        let sign = [
            "x509",
            "-req",
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-set_serial",
            "0x00f1",
            "-in",
            &request,
            "-out",
            &crt,
        ];
        self.openssl(&[&sign[..], more].concat());
        let read = |name: &str| std::fs::read_to_string(self.path(name)).expect("it was made");
        self.write(&format!("{name}.pem"), &(read(&crt) + &read(&key)));
    }
}

/// Two programs with one configuration, each with addresses of its own.
struct Both {
    haproxy: Vec<SocketAddr>,
    baton: Vec<SocketAddr>,
    _haproxy: Haproxy,
    _baton: Proxy,
}

impl Both {
    /// `text` gets the addresses of `count` binds.
    fn start(files: &Files, count: usize, text: impl Fn(&[SocketAddr]) -> String) -> Both {
        let addresses = || (0..count).map(|_| free_address()).collect::<Vec<_>>();
        let (ours, theirs) = (addresses(), addresses());
        let socket = files.path("haproxy.sock");
        let global = format!("global\n stats socket {}\n tune.ssl.capture-buffer-size 4096\n", socket.display());
        let haproxy = Haproxy::start(&(global + &text(&theirs)), &socket);
        let baton = Proxy::start(&("global\n tune.ssl.capture-buffer-size 4096\n".to_owned() + &text(&ours)));
        Both { haproxy: theirs, baton: ours, _haproxy: haproxy, _baton: baton }
    }

    /// The answers to the same question by both, which are the same; gives it.
    #[track_caller]
    fn ask(&self, bind: usize, scheme: &str, args: &[&str]) -> String {
        let [theirs, ours] = [self.haproxy[bind], self.baton[bind]].map(|at| curl(at, scheme, args));
        // In which order headers come nobody promises.
        let sorted = |head: &str| {
            let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        for (theirs, ours) in sorted(&theirs).iter().zip(sorted(&ours)) {
            assert_eq!(&ours, theirs, "{args:?}");
        }
        assert_eq!(sorted(&ours).len(), sorted(&theirs).len(), "{args:?}: {ours}");
        ours
    }
}

/// The head of the answer, or how curl ends.
fn curl(at: SocketAddr, scheme: &str, args: &[&str]) -> String {
    let run = Command::new("curl")
        .args([
            "--silent",
            "--insecure",
            "--max-time",
            "20",
            "--dump-header",
            "-",
            "--output",
            "/dev/null",
            "--connect-to",
        ])
        .arg(format!("a.example::{at}"))
        .args(args)
        .arg(format!("{scheme}://a.example/path?query"))
        .output()
        .expect("curl is installed by scripts/setup");
    format!("{}{}", if run.status.success() { "" } else { "failed " }, String::from_utf8_lossy(&run.stdout))
}

/// Every fetch in a header, behind binds that trust `ca.pem` and the root and more or less of what they see.
fn told(files: &Files, at: &[SocketAddr]) -> String {
    let headers: String = FETCHES
        .split_ascii_whitespace()
        .enumerate()
        .map(|(nth, fetch)| format!(" http-response set-header x{nth:02} \"{fetch}=%[{fetch}]\"\n"))
        .collect();
    let path = |name: &str| files.path(name).display().to_string();
    let ssl = format!("ssl crt {} ca-file {} verify optional", path("server.pem"), path("trusted.pem"));
    format!(
        "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
         frontend f\n bind {} {ssl} alpn http/1.1\n bind {} {ssl} crt-ignore-err all ca-ignore-err all\n\
         bind {} {ssl} crt-ignore-err all ca-ignore-err all ssl-max-ver TLSv1.2\n bind {} {ssl} crt-ignore-err 10\n bind {}\n\
         default_backend b\nbackend b\n{headers} server s {}\nlisten o\n bind {}\n http-request return status 200\n",
        at[0], at[1], at[2], at[3], at[4], at[5], at[5]
    )
}

#[test]
fn fetches_tell_what_haproxy_tells() {
    let files = Files::new();
    files.old("old", r"/C=FR/ST=Île/O=ACME, Inc./OU=one/OU=two/CN=An\/na/emailAddress=a@b.c", &["-days", "9"]);
    files.old("expired", "/CN=Bert", &["-days", "-1"]);
    files.issue("new.pem", &CertificateSpec::client("Carla"));
    let stranger =
        Authority::new("Other").and_then(|other| other.issue(&CertificateSpec::client("Eve"))).expect("it is issued");
    files.write("stranger.pem", &stranger.bundle_pem());
    files.write("alone.pem", &(stranger.certificate_pem().to_owned() + stranger.key_pem()));
    let authority = std::fs::read_to_string(files.path("ca.pem")).expect("it was made");
    files.write("trusted.pem", &(authority + &files.authority.root_pem()));
    let both = Both::start(&files, 6, |at| told(&files, at));
    let (mut accepted, mut refused) = (0, 0);
    for bind in 0..4 {
        for who in [None, Some("old"), Some("expired"), Some("new"), Some("stranger"), Some("alone")] {
            let path = who.map(|name| files.path(&format!("{name}.pem")));
            let certificate = path.as_deref().and_then(Path::to_str);
            let args = certificate.map_or(Vec::new(), |path| vec!["--cert", path]);
            let answer = both.ask(bind, "https", &args);
            *if answer.contains("ssl_fc_protocol=TLSv1.") { &mut accepted } else { &mut refused } += 1;
        }
    }
    assert_eq!((accepted, refused), (19, 5), "strangers and the expired where nothing is ignored");
    assert!(both.ask(4, "http", &[]).contains("ssl_fc=0"), "in clear text nearly everything is missing");
    let answer = both.ask(0, "https", &["--cert", files.path("old.pem").to_str().expect("it is text")]);
    assert!(answer.contains("ssl_c_s_dn(OU,-1)=two") && answer.contains("ssl_c_version=1"), "{answer}");
}

impl Files {
    /// `NAME.pem` and `NAME.key`: a certificate by `issuer` with these extensions, which holds for so many days.
    fn extended(&self, name: &str, issuer: &str, days: &str, extensions: &str) {
        let [key, request, pem, said] = ["key", "csr", "pem", "ext"].map(|end| format!("{name}.{end}"));
        let (subject, issued, signed) = (format!("/CN={name}"), format!("{issuer}.pem"), format!("{issuer}.key"));
        self.write(&said, extensions);
        let ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
        self.openssl(&[&["req", "-subj", &subject, "-keyout", &key, "-out", &request][..], &ec].concat());
        let by = ["-CA", &issued, "-CAkey", &signed, "-CAcreateserial", "-days", days];
        self.openssl(&[&["x509", "-req", "-in", &request, "-extfile", &said, "-out", &pem][..], &by].concat());
    }

    /// `NAME.chain`: these certificates, and the key of the first.
    fn chain(&self, name: &str, links: &[&str]) {
        let read = |name: String| std::fs::read_to_string(self.path(&name)).expect("it was made");
        let links_pem: String = links.iter().map(|link| read(format!("{link}.pem"))).collect();
        self.write(&format!("{name}.chain"), &(links_pem + &read(format!("{}.key", links[0]))));
    }

    /// What `issuer` says is revoked, in a list that holds or has ended; gives it.
    fn list(&self, issuer: &str, revoked: &[&str], has_ended: bool) -> String {
        let kept = self.folder.path().join(format!("{issuer}-{has_ended}"));
        std::fs::create_dir_all(&kept).expect("the folder is ours");
        let at = |name: &str| kept.join(name).display().to_string();
        std::fs::write(at("index"), "").expect("the folder is ours");
        std::fs::write(at("number"), "01\n").expect("the folder is ours");
        let settings = format!("database={}\ncrlnumber={}\ndefault_md=sha256\n", at("index"), at("number"));
        let settings = format!("[ca]\ndefault_ca=d\n[d]\n{settings}");
        std::fs::write(at("settings"), settings).expect("the folder is ours");
        let (config, pem, key) = (at("settings"), format!("{issuer}.pem"), format!("{issuer}.key"));
        let usual = ["ca", "-config", &config, "-cert", &pem, "-keyfile", &key];
        for name in revoked {
            self.openssl(&[&usual[..], &["-revoke", &format!("{name}.pem")]].concat());
        }
        let until: &[&str] = match has_ended {
            true => &["-crl_lastupdate", "20250101000000Z", "-crl_nextupdate", "20250201000000Z"],
            false => &["-crldays", "9"],
        };
        self.openssl(&[&usual[..], &["-gencrl", "-out", &at("crl")], until].concat());
        std::fs::read_to_string(at("crl")).expect("it was made")
    }
}

/// Faults everywhere in a chain have OpenSSL's numbers and depths, with and without lists of revoked certificates.
#[test]
fn faults_of_chains_are_those_of_openssl() {
    const AUTHORITY: &str = "basicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign,cRLSign\n";
    const CLIENT: &str = "basicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n";
    let files = Files::new();
    for name in ["top", "middle", "own"] {
        let ec = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "9"];
        let (subject, key) = (format!("/CN={name}"), format!("fake-{name}.key"));
        self_signed(&files, &ec, &subject, &key, &format!("fake-{name}.pem"));
    }
    for end in ["pem", "key"] {
        std::fs::rename(files.path(&format!("fake-top.{end}")), files.path(&format!("top.{end}")))
            .expect("it is there");
    }
    let authorities = [
        ("middle", "9", AUTHORITY.to_owned()),
        ("revoked-middle", "9", AUTHORITY.to_owned()),
        ("old-middle", "-1", AUTHORITY.to_owned()),
        ("no-authority", "9", "basicConstraints=CA:FALSE\n".to_owned()),
        ("says-nothing", "9", "subjectKeyIdentifier=hash\n".to_owned()),
        ("signs-nothing", "9", "basicConstraints=critical,CA:TRUE\nkeyUsage=digitalSignature\n".to_owned()),
        ("for-servers", "9", format!("{AUTHORITY}extendedKeyUsage=serverAuth\n")),
        ("short", "9", "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=keyCertSign,cRLSign\n".to_owned()),
    ];
    let mut chains = Vec::new();
    for (name, days, extensions) in &authorities {
        files.extended(name, "top", days, extensions);
        files.extended(&format!("of-{name}"), name, "9", CLIENT);
        files.chain(name, &[&format!("of-{name}"), name]);
        chains.push((*name).to_owned());
    }
    files.extended("below", "short", "9", AUTHORITY);
    files.extended("of-below", "below", "9", CLIENT);
    files.chain("too-long", &["of-below", "below", "short"]);
    let leaves = [
        ("revoked", "9", "middle", CLIENT),
        ("old", "-1", "middle", CLIENT),
        ("a-server", "9", "middle", "basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"),
        ("no-signature", "9", "middle", "basicConstraints=CA:FALSE\nkeyUsage=keyEncipherment\n"),
        ("an-authority", "9", "middle", AUTHORITY),
        ("by-another-key", "9", "fake-middle", CLIENT),
    ];
    for (name, days, issuer, extensions) in leaves {
        files.extended(name, issuer, days, extensions);
        files.chain(name, &[name, "middle"]);
    }
    files.chain("alone", &["of-middle"]);
    files.chain("signs-itself", &["fake-own"]);
    chains.extend(leaves.map(|(name, ..)| name.to_owned()));
    chains.extend(["too-long", "alone", "signs-itself"].map(str::to_owned));
    let lists = |has_ended| {
        let top = files.list("top", &["revoked-middle"], has_ended);
        top + &files.list("middle", &["revoked"], has_ended) + &files.list("revoked-middle", &[], false)
    };
    files.write("lists.crl", &lists(false));
    files.write("ended.crl", &lists(true));
    files.write("some.crl", &files.list("top", &["revoked-middle"], false));
    let path = |name: &str| files.path(name).display().to_string();
    let both = Both::start(&files, 6, |at| {
        let ssl = format!("ssl crt {} ca-file {} verify optional", path("server.pem"), path("top.pem"));
        let ignored = format!("{ssl} crt-ignore-err all ca-ignore-err all");
        let list = |name: &str| format!("{ignored} crl-file {}", path(name));
        format!(
            "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
             frontend f\n bind {} {ssl}\n bind {} {ignored}\n bind {} {}\n bind {} {}\n bind {} {}\n default_backend b\n\
             backend b\n http-response set-header x \"%[ssl_c_verify] %[ssl_c_err] %[ssl_c_ca_err] %[ssl_c_ca_err_depth]\"\n\
             server s {}\nlisten o\n bind {}\n http-request return status 200\n",
            at[0],
            at[1],
            at[2],
            list("lists.crl"),
            at[3],
            list("ended.crl"),
            at[4],
            list("some.crl"),
            at[5],
            at[5]
        )
    });
    let ask = |bind, name: &str| both.ask(bind, "https", &["--cert", &path(&format!("{name}.chain"))]);
    for bind in 0..5 {
        for name in &chains {
            ask(bind, name);
        }
    }
    assert!(ask(0, "middle").contains("x: 0 0 0 0") && ask(1, "no-authority").contains("x: 26 0 79 1"));
    assert!(ask(2, "revoked-middle").contains("x: 23 0 23 1") && ask(3, "revoked").contains("x: 12 12 12 1"));
    assert!(ask(0, "no-signature").starts_with("failed") && ask(1, "signs-nothing").starts_with("failed"));
}

/// An authority that signs itself.
fn self_signed(files: &Files, usual: &[&str], subject: &str, key: &str, pem: &str) {
    files.openssl(&[usual, &["-subj", subject, "-keyout", key, "-out", pem]].concat());
}

#[test]
fn both_ports_lead_to_https() {
    let files = Files::new();
    let server = files.path("server.pem").display().to_string();
    let both = Both::start(&files, 5, |at| {
        format!(
            "defaults\n mode http\n timeout client 20s\n timeout connect 20s\n timeout server 20s\n\
             frontend new\n bind {}\n bind {} ssl crt {server}\n http-request redirect scheme https code 301 unless {{ ssl_fc }}\n\
             http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}\n\
             http-response set-header Strict-Transport-Security \"max-age=31536000; includeSubDomains\" if {{ ssl_fc }}\n\
             default_backend b\n\
             frontend old\n bind {}\n bind {} ssl crt {server}\n redirect scheme https if !{{ ssl_fc }}\n default_backend b\n\
             backend b\n server s {}\n\
             listen o\n bind {}\n http-request return status 200 hdr x-seen \"proto=%[req.hdr(x-forwarded-proto)]\"\n",
            at[0], at[1], at[2], at[3], at[4], at[4]
        )
    });
    let plain = both.ask(0, "http", &[]);
    assert!(plain.starts_with("HTTP/1.1 301 ") && plain.contains("https://a.example/path?query"), "{plain}");
    let secure = both.ask(1, "https", &[]);
    assert!(secure.starts_with("HTTP/1.1 200 ") && secure.contains("x-seen: proto=https"), "{secure}");
    assert!(secure.contains("strict-transport-security: max-age=31536000; includeSubDomains"), "{secure}");
    assert!(both.ask(2, "http", &[]).starts_with("HTTP/1.1 302 "));
    assert!(both.ask(3, "https", &[]).starts_with("HTTP/1.1 200 "));
}
