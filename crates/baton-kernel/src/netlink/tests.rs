use super::*;

/// `RTM_GETLINK`, `RTM_NEWLINK`, `RTM_SETLINK`, `struct ifinfomsg` and the name of a link (`IFLA_IFNAME`).
const GET_LINK: u16 = 18;
const NEW_LINK: u16 = 16;
const SET_LINK: u16 = 19;
const IFINFO: usize = 16;
const NAME: u16 = 3;

fn names(replies: &[Reply]) -> Vec<String> {
    replies
        .iter()
        .inspect(|reply| assert_eq!(reply.kind, NEW_LINK))
        .filter_map(|reply| reply.attributes(IFINFO).find(NAME)?.text().map(str::to_owned))
        .collect()
}

#[test]
fn a_list_of_links_has_the_loopback() {
    let mut socket = Socket::open(Protocol::Route).unwrap();
    let all = socket.list(&Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new())).unwrap();
    assert!(names(&all).iter().any(|name| name == "lo"), "{:?}", names(&all));
}

#[test]
fn one_thing_is_asked_and_answered() {
    let mut socket = Socket::open(Protocol::Route).unwrap();
    for _ in 0..3 {
        let one = Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new().text(NAME, "lo"));
        assert_eq!(names(&socket.ask(&one).unwrap()), ["lo"]);
    }
}

#[test]
fn a_refusal_has_the_number_of_its_reason_and_leaves_the_socket_usable() {
    let mut socket = Socket::open(Protocol::Route).unwrap();
    let missing = Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new().text(NAME, "baton-none"));
    let fault = socket.ask(&missing).unwrap_err();
    assert_eq!(fault.errno(), Some(Errno::ENODEV), "{fault}");
    assert!(!fault.is_no_right());
    let one = Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new().text(NAME, "lo"));
    assert_eq!(names(&socket.ask(&one).unwrap()), ["lo"]);
}

#[test]
fn the_kernel_says_why_in_its_own_words() {
    let mut socket = Socket::open(Protocol::Route).unwrap();
    // No attribute of a link may be this long: either the right is missing, or the value is refused with a reason.
    let broken = Request::new(SET_LINK, 0, &[0; IFINFO], &Attributes::new().text(NAME, &"x".repeat(64)));
    let fault = socket.ask(&broken).unwrap_err();
    let NetlinkError::Refused { said, .. } = &fault else { panic!("{fault}") };
    assert!(fault.is_no_right() || said.is_some(), "{fault}");
}

#[test]
fn attributes_come_back_as_they_were_made() {
    let inner = Attributes::new().u32_be(1, 7).u64_be(2, 1 << 40).u16_be(3, 5);
    let all = Attributes::new().text(1, "name").u8(2, 9).nest(3, &inner).u32(4, 11).raw(5, &[]);
    let reader = Reader::new(all.bytes());
    assert_eq!(reader.iter().map(|attribute| attribute.kind).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(reader.find(1).unwrap().text(), Some("name"));
    assert_eq!(reader.find(2).unwrap().value, [9]);
    assert_eq!(reader.find(4).unwrap().u32(), Some(11));
    assert!(reader.find(5).unwrap().value.is_empty());
    assert!(reader.find(6).is_none());
    let nested = reader.find(3).unwrap().nested();
    assert_eq!(nested.find(1).unwrap().u32_be(), Some(7));
    assert_eq!(nested.find(2).unwrap().u64_be(), Some(1 << 40));
    assert_eq!(nested.find(2).unwrap().u32_be(), Some(256));
    assert_eq!(nested.find(3).unwrap().u32_be(), None);
}

#[test]
fn cut_off_bytes_end_the_list_and_nothing_else() {
    let all = Attributes::new().text(1, "name").u32(2, 3);
    for length in 0..all.bytes().len() {
        assert!(Reader::new(&all.bytes()[..length]).iter().count() <= 2);
    }
    for length in 0..40 {
        let mut cut = vec![0; 40];
        cut[0] = length;
        assert!(message::answers(&cut[..usize::from(length)]).unwrap().count() <= 2);
        assert!(message::answers(&cut).unwrap().count() <= 3);
    }
}
