//! Fetches and converters of stick tables, as Debian's haproxy was seen to evaluate them. The tables are those of `common`.

mod common;

use baton_model::{DataType, Role};
use common::{GET, eval, problems, table};

/// Evaluates one expression after the other.
#[track_caller]
fn check(steps: &[(&str, &str)]) {
    for (expression, expected) in steps {
        assert_eq!(eval(expression, GET), *expected, "{expression}");
    }
}

#[test]
fn the_client_s_address_is_looked_up_and_counted() {
    check(&[
        ("src_conn_cnt(ips)", "0"),
        ("src_get_gpc0(ips)", "0"),
        // Neither is there an entry, nor would it have that.
        ("src_get_gpt(1,ips)", "0"),
        ("table_cnt(ips)", "0"),
        ("src_inc_gpc0(ips)", "1"),
        ("src_inc_gpc0(ips)", "2"),
        ("src_get_gpc0(ips)", "2"),
        ("src_gpc0_rate(ips)", "2"),
        ("src_clr_gpc0(ips)", "2"),
        ("src_get_gpc0(ips)", "0"),
        ("src_gpc0_rate(ips)", "2"),
        ("src_inc_gpc1(ips)", "1"),
        ("src_updt_conn_cnt(ips)", "1"),
        ("src_updt_conn_cnt(ips)", "2"),
        ("src_conn_cnt(ips)", "2"),
        ("src_conn_rate(ips)", "0"),
        ("src_http_req_rate(ips)", "0"),
        ("src_kbytes_in(ips)", "0"),
        // There is an entry, which has none of these.
        ("src_get_gpt(1,ips)", "none"),
        ("src_get_gpc(0,ips)", "none"),
        ("src_clr_gpc(0,ips)", "none"),
        ("src_inc_gpc(0,ips)", "0"),
        ("table_cnt(ips)", "1"),
        ("table_avl(ips)", "99"),
        ("src,in_table(ips)", "1"),
        ("src,table_conn_cnt(ips)", "2"),
        ("src,table_trackers(ips)", "0"),
        ("src,table_expire(ips)", "60000"),
        ("src,table_idle(ips)", "0"),
    ]);
    // As if somebody had tracked it.
    let ips = table("ips");
    let key = baton_tables::Key::from_ip([192, 0, 2, 7].into());
    let now = baton_tables::Now::from_millis(1_000_000);
    assert!(ips.set(&key, &[(DataType::BytesInCnt, 0, 4095), (DataType::ServerId, 0, 7)], now));
    check(&[("src_kbytes_in(ips)", "3"), ("src,table_kbytes_in(ips)", "3"), ("src,table_server_id(ips)", "7")]);
}

#[test]
fn arrays_stand_in_for_the_first_counters() {
    check(&[
        ("src_inc_gpc0(names)", "1"),
        ("src_inc_gpc(1,names)", "1"),
        ("src_inc_gpc1(names)", "2"),
        ("src_get_gpc(1,names)", "2"),
        ("src_gpc_rate(1,names)", "2"),
        ("src_gpc1_rate(names)", "2"),
        ("src_get_gpt0(names)", "0"),
        ("src_get_gpt(1,names)", "0"),
        ("src_get_gpc(2,names)", "none"),
        ("src_get_gpc(-1,names)", "none"),
        ("src_inc_gpc(7,names)", "0"),
        ("src_clr_gpc(1,names)", "2"),
        ("src_clr_gpc1(names)", "0"),
        ("str(192.0.2.7),table_gpc0(names)", "1"),
        ("str(192.0.2.7),table_gpc(0,names)", "1"),
        ("str(192.0.2.7),table_inc_gpc(0,names)", "2"),
        ("str(192.0.2.7),table_inc_gpc0(names)", "3"),
        ("str(192.0.2.7),table_clr_gpc0(names)", "3"),
        ("str(192.0.2.7),table_gpc_rate(0,names)", "3"),
        ("str(nobody),table_inc_gpc0(names)", "0"),
        ("str(nobody),in_table(names)", "0"),
        ("str(nobody),table_gpc0(names)", "0"),
    ]);
}

#[test]
fn a_key_that_is_none_gives_nothing() {
    check(&[
        ("str(abc),in_table(ips)", "none"),
        ("str(abc),table_gpc0(ips)", "none"),
        ("str(::1),in_table(ips)", "none"),
        ("str(9.9.9.9),in_table(ips)", "0"),
        ("str(9.9.9.9),table_gpc0(ips)", "0"),
        ("str(9.9.9.9),table_expire(ips)", "none"),
        ("str(9.9.9.9),table_expire(ips,12)", "12"),
        ("str(9.9.9.9),table_idle(ips,13)", "13"),
        ("src_conn_cnt(nowhere)", "none"),
    ]);
}

#[test]
fn stick_rules_are_judged() {
    let check = |line: &str, expected: &str| {
        let found = problems(Role::Backend, line);
        assert!(found.contains(expected), "{line}: {found}");
    };
    check("stick", "expects 'on', 'match', 'store-request' or 'store-response'");
    check("stick one src", "did you mean 'on'");
    check("stick on", "'stick' expects a fetch method");
    check("stick on nope", "unknown sample fetch 'nope'");
    check("stick on src,nope", "unknown converter 'nope'");
    check("stick on src table", "the name of the stick table is missing");
    check("stick on src foo", "unexpected argument 'foo'");
    check("stick on src if TRUE table o", "no ACL 'table'");
    check("stick match res.hdr(x)", "cannot be used here");
    check("stick on res.hdr(x)", "cannot be used here");
    check("stick store-response req.hdr(x)", "cannot be used here");
}
