//! Maps and ACLs beside Debian's haproxy: which entry matches, for thousands of generated keys, and what the commands answer.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::peers::{Both, socat};
use crate::support::{PATIENCE, Proxy, free_address};

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    /// A text of pieces that meet each other often.
    fn text(&mut self) -> String {
        const PIECES: [&str; 14] = ["/", "/", ".", "a", "b", "ab", "A", "www", "example", "com", "?", ":", "-", "x1"];
        (0..1 + self.below(6)).map(|_| self.one(&PIECES)).collect()
    }

    fn address(&mut self) -> String {
        let byte = |it: &mut Numbers| it.one(&["0", "1", "7", "10", "192", "255"]).to_owned();
        match self.below(5) {
            0 => format!("2001:db8:{}::{}", self.below(3), self.below(5)),
            1 => format!("::ffff:10.{}.0.{}", self.below(3), self.below(4)),
            2 => format!("2002:a0{}:{}::1", self.below(3), self.below(3)),
            _ => format!("10.{}.{}.{}", self.below(3), byte(self), byte(self)),
        }
    }

    fn network(&mut self) -> String {
        let address = self.address();
        match (self.below(4), address.contains(':')) {
            (0, _) => address,
            (1, false) => format!("{address}/255.{}.{}.0", self.one(&["255", "0", "240"]), self.one(&["255", "0"])),
            (_, false) => format!("{address}/{}", self.below(33)),
            (_, true) => format!("{address}/{}", self.one(&["0", "16", "32", "48", "96", "112", "127", "128"])),
        }
    }

    fn range(&mut self) -> String {
        let (low, more) = (self.below(40) as i64 - 10, self.below(12) as i64);
        match self.below(4) {
            0 => format!("{}:{}", low + 10, low + 10 + more),
            1 => format!(":{low}"),
            2 => format!("{}:", low + 20),
            _ => low.to_string(),
        }
    }
}

const METHODS: [&str; 7] = ["str", "beg", "end", "sub", "dir", "dom", "reg"];

/// A map of each kind, and files of patterns, in a folder.
fn files(folder: &Path, numbers: &mut Numbers) {
    let lines = |numbers: &mut Numbers, count: usize, key: fn(&mut Numbers) -> String| -> String {
        (0..count).map(|number| format!("{} v{number}\n", key(numbers))).collect()
    };
    // HAProxy looks beyond the text for a pattern of delimiters alone: whether it matches is chance.
    let has_more = |line: &&str| line.split(' ').next().is_some_and(|key| key.contains(|char| !"/.:?".contains(char)));
    let text = lines(numbers, 150, |it| it.text().replace('?', ""));
    let text = text.lines().filter(has_more).fold(String::new(), |out, line| out + line + "\n");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file of the test");
    write("text.map", &text);
    let patterns: String = text.lines().filter_map(|line| Some(format!("{}\n", line.split_once(' ')?.0))).collect();
    write("text.lst", &patterns);
    let regexes = "^/a v0\n(a+)b$ v1\\1\n[.]com x\\0y\n(www|x1).*(b) \\2-\\1\n^$ empty\n";
    write("reg.map", regexes);
    write("reg.lst", &regexes.lines().map(|line| format!("{}\n", line.split_once(' ').unwrap().0)).collect::<String>());
    let networks = lines(numbers, 60, Numbers::network);
    write("ip.map", &networks);
    write("ip.lst", &networks.lines().map(|line| format!("{}\n", line.split_once(' ').unwrap().0)).collect::<String>());
    let ranges = lines(numbers, 25, Numbers::range);
    write("int.map", &ranges);
    write("int.lst", &ranges.lines().map(|line| format!("{}\n", line.split_once(' ').unwrap().0)).collect::<String>());
    let typed = |value: fn(usize) -> String| -> String {
        text.lines()
            .enumerate()
            .map(|(at, line)| format!("{} {}\n", line.split_once(' ').unwrap().0, value(at)))
            .collect()
    };
    write("numbers.map", &typed(|at| (at as i64 * 37 - 900).to_string()));
    write("addresses.map", &typed(|at| if at % 3 == 0 { format!("2001:db8::{at:x}") } else { format!("10.0.0.{at}") }));
    write("bin.lst", "61\n2f61\n7777772e\n");
    write("odd.map", "#no 0\n  key  value of words \t\n#x y\n\t#z w\nnovalue\nc\t3\n\nkey second\nlast end");
}

/// One answer shows what every way to match makes of the request's key.
///
/// HAProxy's cache of patterns is off: with it, 2.6.12 misses patterns of `sub` that are in a list.
fn matching(folder: &Path, web: SocketAddr, socket: &Path) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let mut shown = Vec::new();
    let mut acls = String::new();
    let mut acl = |name: String, line: String| {
        let _ = writeln!(acls, " http-request set-var(txn.{name}) bool(true) if {{ {line} }}");
        shown.push(format!("{name}=%[var(txn.{name})]"));
    };
    for method in METHODS {
        let file = at(if method == "reg" { "reg.lst" } else { "text.lst" });
        acl(format!("f_{method}"), format!("req.hdr(k) -m {method} -f {file}"));
        acl(format!("i_{method}"), format!("req.hdr(k) -m {method} -i -f {file}"));
    }
    for (name, line) in [
        ("found", "req.hdr(k) -m found".to_owned()),
        ("bool", "req.hdr(k) -m bool".to_owned()),
        ("line", "req.hdr(k) ab /a www.example.com".to_owned()),
        ("line_i", "req.hdr(k) -i ab /A WWW.EXAMPLE.COM".to_owned()),
        ("beg", "hdr_beg(k) ab /a www".to_owned()),
        ("end", "hdr_end(k) -i ab /a .COM".to_owned()),
        ("sub", "hdr_sub(k) bx ex".to_owned()),
        ("dir", "hdr_dir(k) a b ab".to_owned()),
        ("dom", "hdr_dom(k) -i example a.b com".to_owned()),
        ("len", "hdr_len(k) 2:4 7 gt 12".to_owned()),
        ("reg", "hdr_reg(k) ^a+b [.:]$".to_owned()),
        ("ints", "req.hdr(k) -m int lt 3 ge 30 7 9:11".to_owned()),
        ("eq", "req.hdr(k) -m int -- -2 eq 5 6".to_owned()),
        ("ip", "hdr_ip(k) 10.0.0.0/9 10.2.0.0/255.255.0.0 2001:db8::/33".to_owned()),
        ("bin", "req.hdr(k),hex -m bin 3631 32663631".to_owned()),
        ("both", format!("req.hdr(k) -f {} -- -x ab", at("text.lst"))),
        ("keys", format!("req.hdr(k) -M -f {}", at("text.map"))),
        ("f_len", format!("req.hdr(k) -m len -f {}", at("int.lst"))),
        ("f_int", format!("req.hdr(k) -m int -f {}", at("int.lst"))),
        ("f_ip", format!("req.hdr(k) -m ip -f {}", at("ip.lst"))),
        ("f_bin", format!("req.hdr(k) -m bin -f {}", at("bin.lst"))),
        ("converted", "req.hdr(k),lower,length 3".to_owned()),
        ("method", "method GET POST".to_owned()),
        ("ver", "req.ver 1.1".to_owned()),
        ("port", "dst_port 1:65535".to_owned()),
    ] {
        acl(format!("a_{name}"), line);
    }
    for method in METHODS {
        let file = at(if method == "reg" { "reg.map" } else { "text.map" });
        shown.push(format!("{method}=%[req.hdr(k),map_{method}({file},none)]"));
        if method != "reg" {
            shown.push(format!("{method}_int=%[req.hdr(k),map_{method}_int({},-7)]", at("numbers.map")));
            shown.push(format!("{method}_ip=%[req.hdr(k),map_{method}_ip({},192.0.2.1)]", at("addresses.map")));
        }
    }
    shown.push(format!("map=%[req.hdr(k),map({})]", at("text.map")));
    shown.push(format!("regm=%[req.hdr(k),map_regm({},none)]", at("reg.map")));
    shown.push(format!("ip=%[req.hdr(k),map_ip({},none)]", at("ip.map")));
    shown.push(format!("int=%[req.hdr(k),map_int({},none)]", at("int.map")));
    shown.push(format!("odd=%[req.hdr(k),map({},none)]", at("odd.map")));
    format!(
        "global\n nbthread 1\n tune.pattern.cache-size 0\n stats socket {} mode 600 level admin\ndefaults\n mode http\n timeout connect \
         5s\n timeout client 30s\n timeout server 30s\nfrontend web\n bind {web}\n{acls} http-request return status 200 content-type text/plain lf-string \"{}\"\n",
        socket.display(),
        shown.join(";")
    )
}

/// What a program answers to each key, in one connection.
fn answers(web: SocketAddr, keys: &[String]) -> Vec<String> {
    let stream = TcpStream::connect(web).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time that is not zero");
    let mut writer = stream.try_clone().expect("a descriptor");
    let mut reader = BufReader::new(stream);
    let mut all = Vec::new();
    for key in keys {
        write!(writer, "GET / HTTP/1.1\r\nHost: test\r\nk: {key}\r\n\r\n").expect("it reads");
        let (mut line, mut length) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).expect("it answers") > 0, "{key}");
            if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = text.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the whole body");
        all.push(String::from_utf8_lossy(&body).into_owned());
    }
    all
}

#[test]
fn whatever_is_looked_up_haproxy_finds_the_same() {
    for seed in [1, 2] {
        let mut numbers = Numbers(seed);
        let (data, webs) = (tempfile::tempdir().expect("a folder for the test"), [free_address(), free_address()]);
        files(data.path(), &mut numbers);
        let text = |at: usize| {
            let data = data.path().to_owned();
            move |folder: &Path| matching(&data, webs[at], &folder.join("admin.sock"))
        };
        let _both = Both::start_each(text(0), text(1));
        let mut keys: Vec<String> = (0..500).map(|_| numbers.text()).collect();
        keys.extend((0..200).map(|_| numbers.address()));
        keys.extend((0..45).map(|number| (number - 15).to_string()));
        keys.extend(["key", "novalue", "c", "last", "#x", "#z", "#no", "-x", "1.2.3", "10.0.0.0/8"].map(str::to_owned));
        let [ours, theirs] = webs.map(|web| answers(web, &keys));
        let mut wrong: HashMap<String, (usize, String)> = HashMap::new();
        for ((key, ours), theirs) in keys.iter().zip(&ours).zip(&theirs) {
            for (ours, theirs) in ours.split(';').zip(theirs.split(';')).filter(|(ours, theirs)| ours != theirs) {
                let name = ours.split('=').next().unwrap_or_default().to_owned();
                let one =
                    wrong.entry(name).or_insert_with(|| (0, format!("{key:?}: baton {ours:?}, haproxy {theirs:?}")));
                one.0 += 1;
            }
        }
        assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
        assert!(ours.iter().all(|answer| answer.contains("a_found=1") && answer.len() > 400), "it is looked up");
    }
}

/// Commands in the order in which they are given: what one changes, the next ones see. `F` is the folder of the files.
const COMMANDS: &[&str] = &[
    "show map",
    "show acl",
    "show map F/words.map",
    "show acl F/paths.lst",
    "show acl #0",
    "show map #99",
    "show acl F/words.map",
    "show acl #3",
    "get map F/words.map a",
    "get map F/words.map nope",
    "get map F/numbers.map one",
    "get map F/nets.map 10.1.2.3",
    "get map F/words.map",
    "get map nope x",
    "get acl F/paths.lst /A",
    "get acl F/paths.lst /abc",
    "get acl #0 /x",
    "get acl nope x",
    "get acl",
    "add map F/words.map new",
    "add map F/words.map new one",
    "add map F/words.map new two three",
    "add map",
    "add map nope k v",
    "add map F/numbers.map k word",
    "add map F/nets.map zz v",
    "add acl F/paths.lst /n",
    "add acl F/paths.lst",
    "add acl F/paths.lst /n m",
    "add acl #0 /i",
    "add acl F/words.map k",
    "add acl nope x",
    "show map F/words.map",
    "show map F/numbers.map",
    "show acl F/paths.lst",
    "show acl #0",
    "set map F/words.map new three",
    "set map F/words.map zip three",
    "set map F/words.map #0xfffffff v",
    "set map F/words.map #zz v",
    "set map F/words.map new",
    "set map nope k v",
    "show map F/words.map",
    "del map F/words.map new",
    "del map F/words.map new",
    "del map F/words.map",
    "del map F/words.map #0xfffffff",
    "del map nope k",
    "del acl F/paths.lst /n",
    "del acl F/paths.lst /n",
    "del acl nope x",
    "del acl",
    "show acl F/paths.lst",
    "prepare map F/words.map",
    "prepare map F/words.map",
    "prepare map nope",
    "prepare acl F/paths.lst",
    "add map @1 F/words.map vk vv",
    "add map @2 F/words.map vk2 vv2",
    "add map @9 F/words.map vk vv",
    "add map @1 F/words.map <<\np1 v1\np2 v2 words\n",
    "add map @1 F/words.map <<\nonly\n",
    "add acl @9 F/paths.lst /x",
    "add acl F/paths.lst <<\n/x\n",
    "show map @1 F/words.map",
    "show map @7 F/words.map",
    "show map @1",
    "get map F/words.map vk",
    "clear map @2 F/words.map",
    "show map @2 F/words.map",
    "commit map F/words.map",
    "commit map @7 F/words.map",
    "commit map @1",
    "commit map @1 F/words.map",
    "show map F/words.map",
    "commit map @1 F/words.map",
    "get map F/words.map vk",
    "add acl @1 F/paths.lst /v",
    "commit acl @1 F/paths.lst",
    "show acl F/paths.lst",
    "clear acl F/paths.lst",
    "show acl F/paths.lst",
    "clear map",
    "clear map nope",
    "clear acl #0",
    "show acl #0",
    "clear map F/words.map",
    "show map F/words.map",
];

fn commands_config(folder: &Path, data: &Path, web: SocketAddr) -> String {
    let data = data.display();
    format!(
        "global\n nbthread 1\n stats socket {}/admin.sock mode 600 level admin\ndefaults\n mode http\n timeout connect 5s\n timeout \
         client 30s\n timeout server 30s\nfrontend web\n bind {web}\n acl inline path /x /y\n acl file path -f {data}/paths.lst /w\n \
         acl file path_beg -i -f {data}/paths.lst\n acl number int(5) gt 3 le 9\n acl keys path -M -f {data}/words.map\n http-request \
         deny if inline file number keys\n http-request set-header a %[path,map({data}/words.map)]%[path,map_str_int({data}/numbers.map)]%[src,map_ip({data}/nets.map)]\n",
        folder.display()
    )
}

/// Without the numbers of entries, counts that HAProxy makes for each use of a file, and what only one of the programs has.
fn normal(text: &str, data: &Path) -> String {
    let line = |line: &str| {
        let line = line.replace(&data.display().to_string(), "F");
        let line = match line.split_once(' ') {
            Some((number, rest)) if number.starts_with("0x") => rest.to_owned(),
            _ => line,
        };
        let line = line.split(" entry_cnt=").next().unwrap_or_default().to_owned();
        match line.split_once("file '") {
            Some((before, after)) if line.contains(" curr_ver=") => {
                let places = after.split("line ").skip(1).filter_map(|text| text.split([',', '.']).next());
                format!(
                    "{} {}",
                    before.trim_end_matches(|char: char| char != ' '),
                    places.collect::<Vec<_>>().join(" ")
                )
            }
            _ => line,
        }
    };
    let lines = text.lines().filter(|line| !line.contains("httpclient")).map(line);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn commands_about_patterns_answer_in_the_words_of_haproxy() {
    let data = tempfile::tempdir().expect("a folder for the test");
    let write = |name: &str, text: &str| std::fs::write(data.path().join(name), text).expect("a file of the test");
    write("words.map", "# comment\na one\nb  two words\n\na second\n");
    write("numbers.map", "one 1\nneg -5\n");
    write("nets.map", "10.0.0.0/8 ten\n10.1.0.0/16 eleven\n");
    write("paths.lst", "/a\n/ab\n");
    let both = Both::start(|folder| commands_config(folder, data.path(), free_address()));
    let folder = data.path().display().to_string();
    let mut wrong = Vec::new();
    for command in COMMANDS {
        let input = format!("{}\n", command.replace("F/", &format!("{folder}/")));
        let said = [both.baton("admin.sock"), both.haproxy("admin.sock")];
        let [ours, theirs] = said.map(|socket| normal(&socat(&socket, &input), data.path()));
        if ours != theirs {
            wrong.push(format!("{command}\n  baton:   {ours:?}\n  haproxy: {theirs:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_entry_is_changed_by_its_number() {
    let data = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(data.path().join("words.map"), "a one\na two\n").expect("a file of the test");
    let (socket, map) = (data.path().join("admin.sock"), data.path().join("words.map"));
    let _proxy = Proxy::start(&format!(
        "global\n stats socket {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\nfrontend web\n \
         bind {}\n http-request set-header a %[path,map({})]\n",
        socket.display(),
        free_address(),
        map.display()
    ));
    let say = |line: &str| socat(&socket, format!("{line}\n"));
    let lines = say("show map #0");
    let second = lines.lines().nth(1).and_then(|line| line.split(' ').next()).expect("a number").to_owned();
    assert_eq!(say(&format!("set map #0 #{second} three")), "\n");
    assert_eq!(say("show map #0"), lines.replace("two", "three"));
    assert_eq!(say(&format!("del map #0 #{second}")), "\n");
    assert_eq!(say("show map #0").lines().count(), 2, "one entry, and an empty line");
    assert!(say("show overrides").contains("words.map: 1 entries changed at run time"));
    // No control character of a command reaches another line of a listing.
    assert_eq!(say("add map #0 x\ry \rz\r"), "\n");
    assert_eq!(say("show map #0").lines().count(), 3);
}

#[test]
fn a_million_names_are_read_and_changed_one_by_one() {
    let data = tempfile::tempdir().expect("a folder for the test");
    let (socket, map, web) = (data.path().join("admin.sock"), data.path().join("names.map"), free_address());
    let names: String = (0..1_000_000).map(|number| format!("host{number}.example.com b{}\n", number % 100)).collect();
    std::fs::write(&map, names).expect("a file of the test");
    let text = format!(
        "global\n nbthread 1\n stats socket {}\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n timeout server 5s\n\
         frontend web\n bind {web}\n http-request return status 200 content-type text/plain lf-string \"%[req.hdr(k),map({},-)]\"\n",
        socket.display(),
        map.display()
    );
    let proxy = Proxy::start(&text);
    let say = |line: &str| socat(&socket, format!("{line}\n"));
    let keys = ["host0.example.com", "host999999.example.com", "host1000000.example.com", "new.example.com"]
        .map(str::to_owned);
    assert_eq!(answers(web, &keys), ["b0", "b99", "-", "-"]);
    assert_eq!(say("add map #0 new.example.com b7"), "\n");
    assert_eq!(say("del map #0 host0.example.com"), "\n");
    assert_eq!(answers(web, &keys), ["-", "b99", "-", "b7"]);
    // A reload of another line reads the file, and leaves the contents as they are.
    proxy.change(&text.replace("timeout client 5s", "timeout client 6s"));
    assert_eq!(answers(web, &keys), ["-", "b99", "-", "b7"]);
    let count = say("show map");
    assert!(count.contains("entry_cnt=1000000"), "{count}");
}
