//! Maps, files of patterns, and how their contents change at run time.

mod common;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use baton_model::{Proxy, Role};
use baton_rules::{
    ChangedKey, CompiledRules, Files, Live, PatternChange, PatternRefusal, ProxyRules, Reference, References,
    RuleCursor, compile,
};

use common::{problems, proxy, show, with_context};

/// Files of one configuration that may change, and its pattern references.
struct Disk {
    files: Mutex<HashMap<&'static str, String>>,
    rules: Mutex<CompiledRules>,
    references: Mutex<Arc<References>>,
}

struct View<'a>(&'a Disk, Arc<References>);

impl Files for View<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        let files = self.0.files.lock().unwrap();
        files.get(path).map(|text| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn pattern_references(&self) -> Option<&References> {
        Some(&self.1)
    }
}

impl Disk {
    fn new(files: &[(&'static str, &str)]) -> Disk {
        let files = files.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        Disk { files: Mutex::new(files), rules: Mutex::default(), references: Mutex::default() }
    }

    fn write(&self, name: &'static str, text: &str) {
        self.files.lock().unwrap().insert(name, text.to_owned());
    }

    /// Reads the rules, as a reload does; `true`: and commits them.
    fn load(&self, lines: &str, commit: bool) -> Arc<ProxyRules> {
        self.load_all(&[("web", lines)], commit).remove(0)
    }

    /// A request through several proxies that share files.
    fn load_all(&self, proxies: &[(&str, &str)], commit: bool) -> Vec<Arc<ProxyRules>> {
        let named = |(name, lines): &(&str, &str)| Proxy { name: (*name).into(), ..proxy(Role::Listen, lines) };
        let proxies: Vec<Proxy> = proxies.iter().map(named).collect();
        let mut new = CompiledRules::default();
        let view = View(self, Arc::clone(new.references()));
        for proxy in &proxies {
            new.insert(proxy, compile(proxy, &view).unwrap_or_else(|problems| panic!("{problems:?}")));
        }
        let mut used = self.rules.lock().unwrap();
        new.share(&used, || {});
        let rules = proxies.iter().map(|proxy| new.of(proxy).unwrap()).collect();
        if commit {
            new.references().commit();
            *self.references.lock().unwrap() = Arc::clone(new.references());
            *used = new;
        }
        rules
    }

    fn reference(&self, name: &str) -> Arc<Reference> {
        let list = self.references.lock().unwrap().list();
        list.into_iter().find(|one| one.title() == name || format!("#{}", one.id()) == name).expect(name)
    }

    fn live(&self, name: &str) -> Arc<Live> {
        self.reference(name).live()
    }

    fn keys(&self, name: &str) -> String {
        let page = self.live(name).page(None, 0, 1000);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let line = |value: Option<&[u8]>, key| match value {
            Some(value) => format!("{}={}", text(key), text(value)),
            None => text(key),
        };
        page.iter().map(|entry| line(entry.value(), entry.key())).collect::<Vec<_>>().join(" ")
    }
}

/// What request rules make of a request for this path.
fn ask(rules: &ProxyRules, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n");
    with_context(&request, None, |cx| {
        let verdict = show(rules.http_request(cx, &mut RuleCursor::default()));
        let head = cx.request.as_ref().unwrap().head.view();
        let value = head.fields().find(b"v").map(|field| field.value.to_vec());
        match value {
            Some(value) => String::from_utf8_lossy(&value).into_owned(),
            None => verdict,
        }
    })
}

const MAP: &str = "http-request set-header v %[path,map(hosts,none)]";

#[test]
fn a_reload_takes_from_a_changed_file_only_what_changed_in_it() {
    let disk = Disk::new(&[("hosts", "/a 1\n/b 2\n/c 3\n/d 4\n")]);
    let rules = disk.load(MAP, true);
    assert_eq!((ask(&rules, "/a").as_str(), ask(&rules, "/x").as_str()), ("1", "none"));
    let live = disk.live("hosts");
    live.set(b"/a", b"live").unwrap();
    live.set(b"/b", b"live").unwrap();
    live.delete(b"/c").unwrap();
    live.add(None, b"/n", Some(b"new")).unwrap();
    live.add(None, b"/m", Some(b"new")).unwrap();
    assert_eq!((live.changed_count(), ask(&rules, "/n").as_str()), (5, "new"));
    // Nothing changed in the file.
    let again = disk.load(MAP, true);
    assert!(Arc::ptr_eq(&rules, &again));
    assert_eq!(disk.keys("hosts"), "/a=live /b=live /d=4 /n=new /m=new");
    // The file has another value for one key, and names one that was added.
    disk.write("hosts", "/e 5\n/a 1\n/b 22\n/c 3\n/d 4\n/m file\n");
    let refused = disk.load(&format!("{MAP}\nhttp-request deny if {{ path /no }}"), false);
    assert_eq!((ask(&refused, "/b").as_str(), ask(&refused, "/e").as_str()), ("live", "none"), "it is not committed");
    live.set(b"/d", b"late").unwrap();
    let again = disk.load(MAP, true);
    assert!(Arc::ptr_eq(&rules, &again), "the rules are as they were");
    assert_eq!(disk.keys("hosts"), "/e=5 /a=live /b=22 /d=late /m=file /n=new");
    assert_eq!(
        (ask(&rules, "/b").as_str(), ask(&rules, "/c").as_str(), ask(&rules, "/e").as_str()),
        ("22", "none", "5")
    );
    let changed: Vec<String> =
        live.changes().iter().map(|change| String::from_utf8_lossy(&change.key).into_owned()).collect();
    assert_eq!(changed, ["/a", "/c", "/d", "/n"]);
}

#[test]
fn what_changes_while_a_file_is_read_is_kept() {
    let disk = Disk::new(&[("hosts", "/a 1\n/b 2\n")]);
    disk.load(MAP, true);
    disk.write("hosts", "/a 1\n/b 22\n/c 3\n");
    let proxy = proxy(Role::Listen, MAP);
    let mut new = CompiledRules::default();
    let view = View(&disk, Arc::clone(new.references()));
    new.insert(&proxy, compile(&proxy, &view).unwrap());
    new.share(&disk.rules.lock().unwrap(), || {});
    let live = disk.live("hosts");
    live.set(b"/a", b"meanwhile").unwrap();
    live.add(None, b"/z", Some(b"9")).unwrap();
    live.set(b"/b", b"lost").unwrap();
    new.references().commit();
    assert_eq!(disk.keys("hosts"), "/b=22 /c=3 /a=meanwhile /z=9");
    // All entries at once.
    disk.write("hosts", "/a 1\n/b 22\n/c 33\n");
    let mut newer = CompiledRules::default();
    let view = View(&disk, Arc::clone(newer.references()));
    newer.insert(&proxy, compile(&proxy, &view).unwrap());
    newer.share(&new, || {});
    live.clear(None);
    live.add(None, b"/y", Some(b"8")).unwrap();
    newer.references().commit();
    assert_eq!(disk.keys("hosts"), "/c=33 /y=8");
}

#[test]
fn another_way_to_match_a_file_in_use_sees_what_is_in_use() {
    let disk = Disk::new(&[("hosts", "/a 1\n")]);
    disk.load(MAP, true);
    disk.live("hosts").add(None, b"/long", Some(b"2")).unwrap();
    let rules = disk.load("http-request set-header v %[path,map_beg(hosts,none)]", true);
    assert_eq!((ask(&rules, "/longer").as_str(), ask(&rules, "/b").as_str()), ("2", "none"));
    disk.live("hosts").add(None, b"/longe", Some(b"3")).unwrap();
    assert_eq!(ask(&rules, "/longer"), "3");
}

#[test]
fn versions_are_not_seen_before_their_commit() {
    let disk = Disk::new(&[("hosts", "/a 1\n/b 2\n")]);
    let rules = disk.load(MAP, true);
    let live = disk.live("hosts");
    assert_eq!(live.add(Some(1), b"/c", Some(b"3")), Err(PatternRefusal::Version));
    assert_eq!((live.prepare(), live.prepare()), (1, 2));
    live.add(Some(1), b"/c", Some(b"3")).unwrap();
    live.add(Some(2), b"/d", Some(b"4")).unwrap();
    assert_eq!((ask(&rules, "/c").as_str(), live.versions()), ("none", (0, 2, 4)));
    live.commit(1).unwrap();
    assert_eq!((ask(&rules, "/c").as_str(), ask(&rules, "/a").as_str()), ("3", "none"));
    assert_eq!((live.commit(1), live.commit(3)), (Err(PatternRefusal::Version), Err(PatternRefusal::Version)));
    live.clear(Some(2));
    live.commit(2).unwrap();
    assert_eq!((disk.keys("hosts").as_str(), live.changed_count()), ("", 2));
}

#[test]
fn actions_change_what_rules_look_up() {
    let disk = Disk::new(&[("hosts", "/a 1\n"), ("paths", "/p\n")]);
    let lines = "http-request set-map(hosts) %[url_param(k)] %[url_param(v)] if { path /set }\n\
         http-request del-map(hosts) %[url_param(k)] if { path /del }\n\
         http-request add-acl(paths) %[url_param(k)] if { path /add }\n\
         http-request del-acl(paths) %[url_param(k)] if { path /away }\n\
         http-request set-map(nowhere) a b\n\
         http-request set-header v in if { path -f paths }\n\
         http-request set-header v %[path,map(hosts,none)] unless { path -f paths }";
    let rules = disk.load(lines, true);
    let check = |path: &str, expected: &str| assert_eq!(ask(&rules, path), expected, "{path}");
    check("/set?k=/x&v=7", "none");
    check("/x", "7");
    check("/set?k=/x&v=8", "none");
    check("/x", "8");
    check("/del?k=/x", "none");
    check("/x", "none");
    check("/add?k=/y", "none");
    check("/add?k=/y", "none");
    check("/y", "in");
    assert_eq!(disk.keys("paths"), "/p /y");
    check("/away?k=/y", "none");
    check("/y", "none");
    // No line break gets in, so that no line of a reply or of a dump is forged.
    let injecting = disk.load(
        &format!(
            "{MAP}
http-request set-map(hosts) %[url_param(k),url_dec] %[url_param(v),url_dec]"
        ),
        true,
    );
    ask(&injecting, "/?k=%2fi%0a%2fevil%201&v=one%0d%0atwo%00three");
    assert_eq!(disk.keys("hosts"), "/a=1 /i%0A/evil 1=one%0D%0Atwo%00three");
}

#[test]
fn patterns_of_a_line_change_at_run_time_and_stay_so() {
    let disk = Disk::new(&[]);
    let lines = "acl here path /a /b\nhttp-request deny if here\nhttp-request set-header v ok";
    let rules = disk.load(lines, true);
    assert_eq!(ask(&rules, "/c"), "ok");
    assert_eq!(disk.reference("#0").description(), "acl 'path' file 't.cfg' line 1");
    disk.live("#0").add(None, b"/c", None).unwrap();
    disk.live("#0").delete(b"/a").unwrap();
    assert_eq!(
        (ask(&rules, "/c").as_str(), ask(&rules, "/a").as_str(), ask(&rules, "/b").as_str()),
        ("deny 403", "ok", "deny 403")
    );
    let other = disk.load(&format!("{lines}\nhttp-request set-header w x"), true);
    assert_eq!((ask(&other, "/c").as_str(), ask(&other, "/a").as_str()), ("deny 403", "ok"));
    // Another line is another ACL.
    let other = disk.load("acl here path /a\nhttp-request deny if here\nhttp-request set-header v ok", true);
    assert_eq!((ask(&other, "/c").as_str(), ask(&other, "/a").as_str()), ("ok", "deny 403"));
}

#[test]
fn each_proxy_keeps_the_patterns_of_its_own_lines() {
    let disk = Disk::new(&[]);
    let lines = "http-request deny if { path /a }\nhttp-request deny if { path /a }\nhttp-request set-header v ok";
    let title = |proxy: &str, nth: &str| format!("acl listen {proxy}: path /a{nth}");
    disk.load_all(&[("b", lines)], true);
    disk.live(&title("b", "")).add(None, b"/one", None).unwrap();
    disk.live(&title("b", " #2")).add(None, b"/two", None).unwrap();
    // Another proxy with these lines comes before it; this one keeps its rules.
    let rules = disk.load_all(&[("a", lines), ("b", lines)], true);
    let answers = |path: &str| rules.iter().map(|rules| ask(rules, path)).collect::<Vec<_>>().join(" ");
    assert_eq!([answers("/a"), answers("/one"), answers("/two")], ["deny 403 deny 403", "ok deny 403", "ok deny 403"]);
    let counts = |disk: &Disk| {
        let list = disk.references.lock().unwrap().list();
        let mut counts: Vec<_> =
            list.iter().map(|one| format!("{} {}", one.title(), one.live().changed_count())).collect();
        counts.sort();
        counts
    };
    let expected = [
        "acl listen a: path /a #2 0",
        "acl listen a: path /a 0",
        "acl listen b: path /a #2 1",
        "acl listen b: path /a 1",
    ];
    assert_eq!(counts(&disk), expected);
    disk.live(&title("a", "")).add(None, b"/three", None).unwrap();
    assert_eq!(answers("/three"), "deny 403 ok");
    disk.live(&title("b", "")).delete(b"/one").unwrap();
    assert_eq!(answers("/one"), "ok ok");
    // Words that only look alike are another line.
    disk.load("http-request deny if { path \"/a b\" }\nhttp-request deny if { path /a b \\#2 }", true);
    disk.reference("acl listen web: path \"/a b\"");
    disk.reference("acl listen web: path /a b \"#2\"");
}

#[test]
fn actions_of_rules_that_stay_change_what_is_in_use() {
    let disk = Disk::new(&[("hosts", "/a 1\n")]);
    let setter = "http-request set-map(hosts) %[path] 7";
    let write = |rules: &ProxyRules, path: &str| drop(ask(rules, path));
    let load = |also: &str, commit| disk.load_all(&[("setter", setter), ("reader", also)], commit);
    let other = "http-request set-header v x";
    let first = load(other, true);
    assert!(disk.references.lock().unwrap().has_actions());
    // A plan, or a reload that is refused: it is read, and not used.
    let planned = load(MAP, false);
    write(&first[0], "/plan");
    assert_eq!(ask(&planned[1], "/plan"), "none");
    drop(planned);
    let used = load(MAP, true);
    assert!(Arc::ptr_eq(&first[0], &used[0]));
    write(&used[0], "/b");
    assert_eq!((ask(&used[1], "/b").as_str(), ask(&used[1], "/plan").as_str()), ("7", "none"));
    drop(load(other, false));
    write(&used[0], "/c");
    assert_eq!(ask(&used[1], "/c"), "7");
    // Nobody reads it any more, then somebody does again.
    load(other, true);
    write(&used[0], "/d");
    let again = load(MAP, true);
    write(&used[0], "/e");
    assert_eq!(["/b", "/d", "/e"].map(|path| ask(&again[1], path)), ["none", "none", "7"]);
    drop((first, used, again));
    disk.load(MAP, true);
    assert!(!disk.references.lock().unwrap().has_actions(), "the rules are gone");
}

#[test]
fn requests_at_the_same_time_add_a_key_once() {
    let disk = Disk::new(&[("hosts", ""), ("paths", "")]);
    let lines = "http-request set-map(hosts) %[path] 1\nhttp-request add-acl(paths) %[path]\n\
         http-request set-header v %[path,map(hosts)] if { path -f paths }";
    let rules = &disk.load(lines, true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || (0..500).for_each(|number| assert_eq!(ask(rules, &format!("/{number}")), "1")));
        }
    });
    let counts = ["hosts", "paths"].map(|name| disk.live(name).versions().2);
    assert_eq!(counts, [500, 500]);
}

#[test]
fn many_entries_are_added_at_once_up_to_one_that_is_refused() {
    let disk = Disk::new(&[("hosts", "^/0$ 0\n")]);
    let rules = disk.load("http-request set-header v %[path,map_reg(hosts,none)]", true);
    let live = disk.live("hosts");
    let entry = |number: usize| {
        let key = if number == 150 { "(".to_owned() } else { format!("^/{number}$") };
        (key.into_bytes(), Some(number.to_string().into_bytes()))
    };
    let add = |version| {
        let entries = (1..=200).map(entry).collect();
        live.change_patterns(PatternChange::Add { version, entries })
    };
    assert!(matches!(add(None), Err(PatternRefusal::Invalid(_))));
    assert_eq!(["/0", "/1", "/149", "/151"].map(|path| ask(&rules, path)), ["0", "1", "149", "none"]);
    assert_eq!((live.changed_count(), live.prepare()), (149, 1));
    assert!(matches!(add(Some(1)), Err(PatternRefusal::Invalid(_))));
    live.delete(b"^/149$").unwrap();
    assert_eq!((live.changed_count(), live.versions().2), (148, 149 + 149));
    live.commit(1).unwrap();
    assert_eq!(["/0", "/1", "/149"].map(|path| ask(&rules, path)), ["none", "1", "149"]);
}

#[test]
fn of_many_changes_only_that_there_are_many_is_noted() {
    let keys = |from: usize| (from..from + 5000).map(|number| format!("/{number} 1\n")).collect::<String>();
    let disk = Disk::new(&[("hosts", &keys(0))]);
    disk.load(MAP, true);
    let live = disk.live("hosts");
    live.note_changes();
    let add = |version, from: usize| {
        let entry = |number: usize| (format!("/{number}").into_bytes(), Some(b"1".to_vec()));
        let entries = (from..from + 5000).map(entry).collect();
        live.change_patterns(PatternChange::Add { version, entries }).unwrap();
    };
    add(None, 5000);
    assert!(live.has_noted());
    assert_eq!((live.take_noted(), live.changes().len(), live.has_noted()), (None, 5000, false));
    // Another version, with half of the file in it: what is in use is compared with the file, while requests go on.
    live.prepare();
    add(Some(1), 2500);
    live.commit(1).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..500).for_each(|number| drop(live.set(format!("/{}", 2500 + number).as_bytes(), b"live"))));
        assert!((5000..=5500).contains(&live.changes().len()));
    });
    let changes = live.changes();
    assert_eq!((live.take_noted(), changes.len(), live.changed_count()), (None, 5500, 5500));
    let of = |key: &str| changes.iter().find(|change| change.key == key.as_bytes());
    let one = |value: &str| vec![Some(value.as_bytes().to_vec())];
    for (key, file, is) in [("/0", one("1"), vec![]), ("/2500", one("1"), one("live")), ("/7499", vec![], one("1"))] {
        assert_eq!(of(key), Some(&ChangedKey { key: key.into(), file, live: is }));
    }
    assert_eq!(of("/4999"), None);
}

#[test]
fn a_key_may_have_very_many_entries() {
    // Quadratic work would take minutes.
    let count = 100_000;
    let disk = Disk::new(&[("hosts", &"/a 1\n".repeat(count))]);
    let rules = disk.load(MAP, true);
    let live = disk.live("hosts");
    let entries = vec![(b"/a".to_vec(), Some(b"2".to_vec())); count];
    live.change_patterns(PatternChange::Add { version: None, entries }).unwrap();
    assert_eq!((live.versions().2, live.changed_count(), ask(&rules, "/a").as_str()), (2 * count, 1, "1"));
    live.set(b"/a", b"3").unwrap();
    assert_eq!(ask(&rules, "/a"), "3");
    live.delete(b"/a").unwrap();
    assert_eq!((live.versions().2, ask(&rules, "/a").as_str()), (0, "none"));
}

#[test]
fn another_process_goes_on_with_what_was_changed() {
    let disk = Disk::new(&[("hosts", "/a 1\n/b 2\n/c 3\n")]);
    disk.load(MAP, true);
    let live = disk.live("hosts");
    live.note_changes();
    live.set(b"/a", b"live").unwrap();
    live.delete(b"/b").unwrap();
    live.set(b"/c", b"live").unwrap();
    live.add(None, b"/n", Some(b"new")).unwrap();
    let mut noted = live.take_noted().unwrap();
    noted.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(noted, live.changes());
    assert!(live.take_noted().unwrap().is_empty() && !live.has_noted());
    let next = Disk::new(&[("hosts", "/a 1\n/b 2\n/c other\n")]);
    let rules = next.load(MAP, true);
    let restored: Vec<bool> = noted.iter().map(|change| next.live("hosts").restore(change)).collect();
    assert_eq!(restored, [true, true, false, true]);
    assert_eq!(next.keys("hosts"), "/c=other /a=live /n=new");
    assert_eq!(ask(&rules, "/a"), "live");
    live.set(b"/a", b"1").unwrap();
    let value = || vec![Some(b"1".to_vec())];
    assert_eq!(live.take_noted().unwrap(), [ChangedKey { key: b"/a".to_vec(), file: value(), live: value() }]);
}

#[test]
fn references_have_the_numbers_that_haproxy_gives_them() {
    let disk = Disk::new(&[("hosts", "/a 1\n"), ("paths", "/p\n")]);
    let lines = "acl one path /x /y\nacl two path -f paths /w\nacl three path -u 7 /u\nhttp-request set-header v %[path,map(hosts)] if one\n\
         http-request deny if { path_beg -i -f paths } two three\nacl four hdr(host) -M -f hosts";
    disk.load(lines, true);
    let list = disk.references.lock().unwrap().list();
    let shown: Vec<String> =
        list.iter().map(|one| format!("{} ({}) {}", one.id(), one.file().unwrap_or(""), one.description())).collect();
    assert_eq!(
        shown,
        [
            "0 () acl 'path' file 't.cfg' line 1",
            "1 (paths) pattern loaded from file 'paths' used by acl at file 't.cfg' line 2, by acl at file 't.cfg' line 5",
            "2 () acl 'path' file 't.cfg' line 2",
            "3 (hosts) pattern loaded from file 'hosts' used by map at file 't.cfg' line 4, by map at file 't.cfg' line 6",
            "4 () acl 'path_beg' file 't.cfg' line 5",
            "5 () acl 'hdr' file 't.cfg' line 6",
            "7 () acl 'path' file 't.cfg' line 3",
        ]
    );
}

#[test]
fn the_entry_that_wins_is_haproxys() {
    let disk = Disk::new(&[
        ("texts", "/a first\n/ab longer\n/a second\nb end\n/ab/c later\n"),
        (
            "nets",
            "10.0.0.0/8 wide\n10.1.0.0/16 narrow\n::ffff:10.9.0.0/112 mapped\n2001:db8::/32 six\n10.0.7.0/255.0.255.0 odd\n",
        ),
        ("numbers", "1:10 few\n5 five\n11 eleven\n:0 none\n100: many\n"),
        ("regexes", "^/x(.*)y$ a\\1b\n^/ r\n"),
    ]);
    let check = |converter: &str, text: &str, expected: &str| {
        let rules = disk.load(&format!("http-request set-header v %[url_param(q),{converter}]"), true);
        assert_eq!(ask(&rules, &format!("/?q={text}")), expected, "{converter} {text}");
    };
    check("map(texts,-)", "/a", "first");
    check("map_beg(texts,-)", "/abc", "longer");
    check("map_beg(texts,-)", "/axx", "first");
    check("map_beg(texts,-)", "x", "-");
    check("map_end(texts,-)", "x/ab", "longer");
    check("map_sub(texts,-)", "x/ab/cx", "first");
    check("map_dir(texts,-)", "/q/ab/cx", "longer");
    check("map_dom(texts,-)", "x.ab.y", "longer");
    check("map_ip(nets,-)", "10.2.3.4", "wide");
    check("map_ip(nets,-)", "10.1.3.4", "narrow");
    check("map_ip(nets,-)", "::ffff:10.1.3.4", "narrow");
    check("map_ip(nets,-)", "2001:db8::1", "six");
    check("map_ip(nets,-)", "x", "");
    check("map_int(numbers,-)", "5", "few");
    check("map_int(numbers,-)", "11", "eleven");
    check("map_int(numbers,-)", "-4", "none");
    check("map_int(numbers,-)", "50", "-");
    check("map_reg(regexes,-)", "/xzzy", "a\\1b");
    check("map_regm(regexes,-)", "/xzzy", "azzb");
    check("map_reg(regexes,-)", "/q", "r");
}

#[test]
fn what_no_map_can_be_is_refused() {
    let check = |rule: &str, expected: &str| {
        let disk = Disk::new(&[("words", "a one\n"), ("numbers", "1 2\nx 3\n"), ("paths", "/a\n")]);
        let proxy = proxy(Role::Listen, rule);
        let own = References::default();
        let view = View(&disk, Arc::new(own));
        let problems = compile(&proxy, &view).expect_err(rule);
        assert_eq!(problems[0].message, expected, "{rule}");
    };
    check("http-request set-header a %[path,map(none)]", "failed to open pattern file <none>: entity not found");
    check("http-request set-header a %[path,map_str_int(words)]", "unable to parse 'one' at line 1 of file 'words'");
    check("http-request set-header a %[path,map_int(numbers)]", "'x' is not a number at line 2 of file 'numbers'");
    check("http-request set-header a %[path,map_str_ip(words,x)]", "'x' is not an IPv4 or IPv6 address");
    check(
        "http-request deny if { src -f paths }",
        "'/a' is not a valid IPv4 or IPv6 address at line 1 of file 'paths'",
    );
    check("http-request deny if { path -u x /a }", "the argument of -u must be an integer");
    check("http-request deny if { path -u 3 /a } { path -u 3 /b }", "the id is already used");
    check(
        "http-request deny if { path -f words } { path,map(words) -m found }",
        "'words' is already used as a file of patterns by an ACL, which has no values",
    );
    check("http-request set-map(words) a", "a value is missing");
    check("http-request set-map a b", "the name of the file is missing");
    assert_eq!(problems(Role::Listen, "http-request deny if { path -f opt@missing -f virt@x }"), "none");
}

#[test]
fn a_refused_value_changes_nothing() {
    let disk = Disk::new(&[("numbers", "a 1\n")]);
    let rules = disk.load("http-request set-header v %[path,map_str_int(numbers,7)]", true);
    let live = disk.live("numbers");
    assert_eq!(live.add(None, b"/x", Some(b"word")), Err(PatternRefusal::Invalid("unable to parse 'word'".into())));
    assert_eq!(live.set(b"a", b"word"), Err(PatternRefusal::Invalid("unable to parse 'word'".into())));
    live.add(None, b"/x", Some(b"-5")).unwrap();
    assert_eq!((ask(&rules, "/x").as_str(), ask(&rules, "/y").as_str()), ("-5", "7"));
    assert_eq!(
        (live.set(b"q", b"1"), live.delete(b"q")),
        (Err(PatternRefusal::NotFound), Err(PatternRefusal::NotFound))
    );
}

#[test]
fn readers_see_one_version_or_the_other_while_it_is_exchanged() {
    let disk = Disk::new(&[("hosts", "/a 1\n/b 1\n")]);
    let rules = disk.load("http-request set-header v %[path,map(hosts)]%[str(/b),map(hosts)]", true);
    let live = disk.live("hosts");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for _ in 0..20_000 {
                // Two look-ups may see two versions; each sees a whole one.
                let seen = ask(&rules, "/a");
                assert!(seen.len() == 2 && seen.bytes().all(|byte| byte.is_ascii_digit()), "{seen}");
            }
        });
        for value in 0..300u32 {
            let version = live.prepare();
            let digit = (value % 10).to_string();
            for key in [b"/a", b"/b"] {
                live.add(Some(version), key, Some(digit.as_bytes())).unwrap();
            }
            live.commit(version).unwrap();
        }
        reader.join().unwrap();
    });
}

#[test]
fn case_may_be_ignored_in_a_file() {
    let disk = Disk::new(&[("paths", "/Ab\n")]);
    let rules = disk.load("http-request deny if { path_beg -i -f paths }\nhttp-request set-header v ok", true);
    assert_eq!((ask(&rules, "/aBc").as_str(), ask(&rules, "/a").as_str()), ("deny 403", "ok"));
    disk.live("paths").add(None, b"/Q", None).unwrap();
    assert_eq!(ask(&rules, "/q"), "deny 403");
}
