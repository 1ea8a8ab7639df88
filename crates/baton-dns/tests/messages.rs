//! Queries and responses as bytes: what name servers send, and what hostile peers do.

use baton_dns::message::{Unrelated, id};
use baton_dns::{DomainName, Outcome, Query, RecordType};

const ID: u16 = 0x1234;

fn query(name: &str, kind: RecordType) -> Query {
    Query { id: ID, name: DomainName::parse(name).expect("a name"), kind }
}

/// A name as labels.
fn wire(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

fn record(name: &str, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = wire(name);
    for number in [kind, 1, 0, 60, data.len() as u16] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}

fn srv(weight: u16, port: u16, host: &str) -> Vec<u8> {
    let mut bytes = vec![0, 1];
    bytes.extend_from_slice(&weight.to_be_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&wire(host));
    bytes
}

/// A response with these flags to a question, with answers and additional records.
fn response(flags: u16, (name, kind): (&str, u16), answers: &[Vec<u8>], additional: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in [ID, flags, 1, answers.len() as u16, 0, additional.len() as u16] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(&wire(name));
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&[0, 1]);
    answers.iter().chain(additional).for_each(|record| bytes.extend_from_slice(record));
    bytes
}

fn check(kind: RecordType, bytes: &[u8], expect: &str) {
    let shown = match query("app.test", kind).read(bytes) {
        Ok(Outcome::Addresses(all)) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
        Ok(Outcome::Services(all)) => {
            let one = |service: &baton_dns::message::Service| {
                format!("{}:{}/{}{:?}", service.host, service.port, service.weight, service.addresses)
            };
            all.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        other => format!("{other:?}"),
    };
    assert_eq!(shown, expect);
}

const OK: u16 = 0x8180;
const A: (&str, u16) = ("app.test", 1);
const SRV: (&str, u16) = ("app.test", 33);

#[test]
fn a_query_asks_one_question_and_says_how_long_a_response_may_be() {
    let bytes = query("App.Test", RecordType::Aaaa).write(512);
    assert_eq!(bytes[..12], [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[12..], [&wire("app.test")[..], &[0, 28, 0, 1]].concat());
    let with_size = query("app.test", RecordType::Srv).write(4096);
    assert_eq!(with_size[11], 1, "one additional record");
    assert_eq!(with_size[with_size.len() - 11..], [0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((id(&bytes), id(&bytes[..11])), (Some(ID), None));
}

#[test]
fn addresses_are_those_of_the_question_or_of_its_aliases() {
    let two = [record("app.test", 1, &[10, 0, 0, 1]), record("APP.test", 1, &[10, 0, 0, 2])];
    check(RecordType::A, &response(OK, A, &two, &[]), "10.0.0.1 10.0.0.2");
    let alias = [record("app.test", 5, &wire("b.test")), record("b.test", 1, &[10, 0, 0, 3])];
    check(RecordType::A, &response(OK, A, &alias, &[]), "10.0.0.3");
    let foreign = [record("other.test", 1, &[10, 6, 6, 6]), record("app.test", 1, &[10, 0, 0, 1])];
    check(RecordType::A, &response(OK, A, &foreign, &[]), "10.0.0.1");
    let six = [record("app.test", 28, &[0; 16])];
    check(RecordType::Aaaa, &response(OK, ("app.test", 28), &six, &[]), "::");
    check(RecordType::A, &response(OK, A, &six, &[]), "Ok(Empty)");
    check(RecordType::A, &response(OK, A, &alias[..1], &[]), "Ok(CnameError)");
    check(RecordType::A, &response(OK, A, &[], &[]), "Ok(Empty)");
    let twice = [two[0].clone(), two[0].clone()];
    check(RecordType::A, &response(OK, A, &twice, &[]), "10.0.0.1");
}

#[test]
fn services_have_the_addresses_of_additional_records() {
    let two = [record("app.test", 33, &srv(0, 81, "a.test")), record("app.test", 33, &srv(300, 82, "b.test"))];
    let more =
        [record("a.test", 1, &[10, 0, 0, 1]), record("x.test", 1, &[10, 6, 6, 6]), record("a.test", 28, &[0; 16])];
    check(RecordType::Srv, &response(OK, SRV, &two, &more), "a.test:81/0[10.0.0.1, ::] b.test:82/2[]");
    let root = [record("app.test", 33, &srv(1, 80, ""))];
    check(RecordType::Srv, &response(OK, SRV, &root, &[]), "Ok(Empty)");
    let heaviest = [record("app.test", 33, &srv(65_535, 1, "a.test"))];
    check(RecordType::Srv, &response(OK, SRV, &heaviest, &[]), "a.test:1/256[]");
}

#[test]
fn errors_are_what_they_are() {
    let code = |code: u16| response(OK | code, A, &[], &[]);
    check(RecordType::A, &code(3), "Ok(Nx)");
    check(RecordType::A, &code(5), "Ok(Refused)");
    check(RecordType::A, &code(2), "Ok(Other)");
    check(RecordType::A, &response(OK | 0x200, A, &[], &[]), "Ok(Truncated)");
    // A name server that did not understand has no question to repeat.
    let bare = [&ID.to_be_bytes()[..], &[0x81, 0x81], &[0; 8]].concat();
    check(RecordType::A, &bare, "Ok(Other)");
}

#[test]
fn what_is_no_response_to_the_question_is_told_apart() {
    let good = response(OK, A, &[record("app.test", 1, &[10, 6, 6, 6])], &[]);
    let unrelated = |bytes: &[u8], expect| assert_eq!(query("app.test", RecordType::A).read(bytes), Err(expect));
    let mut other_id = good.clone();
    other_id[0] ^= 1;
    unrelated(&other_id, Unrelated::OtherQuestion);
    unrelated(&response(OK, ("apq.test", 1), &[], &[]), Unrelated::OtherQuestion);
    unrelated(&response(OK, ("app.test", 28), &[], &[]), Unrelated::OtherQuestion);
    unrelated(&response(0x0100, A, &[], &[]), Unrelated::NoResponse);
    unrelated(&good[..11], Unrelated::NoResponse);
    let mut no_question = good.clone();
    no_question[5] = 0;
    unrelated(&no_question, Unrelated::OtherQuestion);
}

#[test]
fn malformed_records_make_a_response_invalid() {
    let good = response(OK, A, &[record("app.test", 1, &[10, 0, 0, 1])], &[]);
    for length in 26 + 1..good.len() {
        check(RecordType::A, &good[..length], "Ok(Invalid)");
    }
    let short = [record("app.test", 1, &[10, 0, 0])];
    check(RecordType::A, &response(OK, A, &short, &[]), "Ok(Invalid)");
    // A name that points to itself.
    let mut loops = response(OK, A, &[], &[]);
    loops[7] = 1;
    let at = loops.len() as u16 | 0xc000;
    loops.extend_from_slice(&at.to_be_bytes());
    loops.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 1]);
    check(RecordType::A, &loops, "Ok(Invalid)");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..600), kind in 0..3) {
        let kind = [RecordType::A, RecordType::Aaaa, RecordType::Srv][kind as usize];
        let mut bytes = bytes;
        let _ = query("app.test", kind).read(&bytes);
        // These bytes as records behind a head and a question that fit.
        let mut response = response(OK, ("app.test", match kind { RecordType::A => 1, RecordType::Aaaa => 28, RecordType::Srv => 33 }), &[], &[]);
        (response[7], response[11]) = (3, 3);
        response.append(&mut bytes);
        let _ = query("app.test", kind).read(&response);
    }
}
