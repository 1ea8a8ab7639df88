//! Rules that track entries of stick tables, and what is counted in them. Each test has keys of its own: the tables are shared.

mod common;

use baton_model::Role;
use baton_rules::{Format, RuleCursor, RulePosition};
use common::{GET, OK, files, problems, rules, with_context};

/// Follows rules about a request and a response, and gives what a format shows then.
#[track_caller]
fn check(lines: &str, shown: &str, expected: &str) {
    let rules = rules(lines);
    let format = Format::compile(shown, RulePosition::Response, &files()).expect(shown);
    let found = with_context(GET, Some(&OK.replace("200", "404")), |cx| {
        let _ = rules.http_request(cx, &mut RuleCursor::default());
        let _ = rules.http_response(cx, &mut RuleCursor::default());
        let mut out = Vec::new();
        format.write(cx, &mut out);
        String::from_utf8(out).expect("text")
    });
    assert_eq!(found, expected, "{lines}: {shown}");
}

#[test]
fn what_is_tracked_is_counted_until_it_ends() {
    let track = "http-request track-sc0 str(10.0.0.1) table ips";
    let all = "%[sc0_tracked] %[sc0_trackers] %[sc0_conn_cnt] %[sc0_conn_cur] %[sc0_conn_rate] %[sc0_http_req_cnt] %[sc0_http_req_rate]";
    check(track, all, "1 1 1 1 1 1 1");
    check(track, all, "1 1 2 1 2 2 2");
    // As long as it lasts, a counter tracks no other entry.
    check(&format!("{track} ; http-request track-sc0 str(10.0.0.2) table ips"), "%[sc0_conn_cnt]", "3");
    check("http-request track-sc(0) str(10.0.0.1) table ips", "%[sc_conn_cnt(0)]", "4");
}

#[test]
fn a_response_that_failed_is_counted_when_it_is_tracked() {
    check(
        "http-response track-sc1 str(10.0.1.1) table ips",
        "%[sc1_http_req_cnt] %[sc1_http_err_cnt] %[sc1_http_fail_cnt]",
        "1 1 0",
    );
}

#[test]
fn without_an_entry_or_a_type_of_data_there_is_no_value() {
    check("", "%[sc0_tracked]|%[sc0_trackers]|%[sc0_conn_cnt]|%[sc_get_gpc(0,0)]|%[sc0_inc_gpc0]", "0||||");
    check("http-request track-sc0 req.hdr(none) table ips", "%[sc0_tracked]", "0");
    check("http-request track-sc0 str(x) table ips", "%[sc0_tracked]", "0");
    let track = "http-request track-sc0 str(10.0.2.1) table px";
    check(track, "%[sc0_tracked]|%[sc0_conn_cnt]|%[sc0_get_gpc0]|%[sc_get_gpc(0,0)]", "1||0|");
}

#[test]
fn another_table_is_asked_for_the_same_key() {
    let track = "http-request track-sc0 str(10.0.3.1) table ips";
    check(track, "%[sc0_get_gpc0(px)] %[sc0_tracked(px)] %[sc0_get_gpc0(names)]", "0 1 0");
    check("http-request track-sc1 str(10.0.3.1) table px ; http-request sc-inc-gpc0(1)", "%[sc1_get_gpc0]", "1");
    check(track, "%[sc0_get_gpc0(px)] %[sc0_inc_gpc0(px)] %[sc_get_gpc0(0,px)]", "1 2 2");
}

#[test]
fn general_purpose_counters_and_tags() {
    let track = "http-request track-sc2 str(general) table names";
    check(
        &format!(
            "{track} ; http-request sc-inc-gpc(1,2) ; http-request sc-add-gpc(1,2) 4 ; http-request sc-inc-gpc0(2)"
        ),
        "%[sc_get_gpc(1,2)] %[sc2_get_gpc1] %[sc2_get_gpc0] %[sc_gpc_rate(1,2)] %[sc2_gpc0_rate] %[sc_get_gpc(2,2)]",
        "5 5 1 5 1 ",
    );
    check(
        &format!("{track} ; http-request sc-set-gpt0(2) 7 ; http-request sc-set-gpt(1,2) path,length"),
        "%[sc2_get_gpt0] %[sc_get_gpt(0,2)] %[sc_get_gpt(1,2)]",
        "7 7 4",
    );
    check(track, "%[sc_inc_gpc(1,2)] %[sc_clr_gpc(1,2)] %[sc_get_gpc(1,2)] %[sc_inc_gpc(9,2)]", "6 6 0 0");
    let first = "http-request track-sc1 str(cleared) table names ; http-request sc-add-gpc(1,1) 3";
    check(first, "%[sc1_clr_gpc(1)] %[sc_get_gpc(1,1)] %[sc1_clr_gpc(1,names)]", "3 0 0");
    // What is not tracked is not changed.
    check("http-request sc-inc-gpc0(1) ; http-request sc-set-gpt0(1) 3", "%[sc1_get_gpt0]", "");
}

#[test]
fn faults_of_tracking_rules() {
    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(problems(Role::Frontend, line), expected, "{line}");
    }
    let counters = "there are 3 ('tune.stick-counters' in 'global' says how many there are)";
    check(
        "http-request track-sc3 src table ips",
        &format!("1@0: there is no counter 3: they are numbered from 0, and {counters}"),
    );
    check(
        "http-request sc-inc-gpc0(7)",
        &format!("1@0: there is no counter 7: they are numbered from 0, and {counters}"),
    );
    check(
        "http-request track-sc0 src table none",
        "1@3: unable to find table 'none' referenced by track-sc0 (add a 'stick-table' line to this section, or name a section that has \
         one: 'table NAME')",
    );
    check("http-request track-sc0", "1@1: the key is missing (write an expression, such as 'src')");
    check("http-request track-sc0 src table", "1@3: a table's name is missing");
    check("http-request track-scx src", "1@0: unknown http-request action 'track-scx' (did you mean 'track-sc'?)");
    check(
        "http-request track-sc0 bool(1) table ips",
        "1@3: stick-table 'ips' has keys of type 'ip', which a value of type 'boolean' cannot be",
    );
    check(
        "http-request sc-inc-gpc(1)",
        "1@0: 'sc-inc-gpc' needs an index and the number of a counter (write sc-inc-gpc(INDEX,COUNTER))",
    );
    check("http-request sc-inc-gpc(100,0)", "1@0: index 100 is above 99, the last one of an array");
    check("http-request sc-set-gpt0(0)", "1@1: the value is missing (write a number or an expression)");
    check("http-request sc-set-gpt0(0) 4294967296", "1@1: '4294967296' is not a number from 0 to 4294967295");
    check("http-after-response sc-inc-gpc0(0)", "1@0: 'http-after-response' has no action 'sc-inc-gpc0'");
    check("http-request set-header x %[sc_conn_cnt]", "1@2: sample fetch 'sc_conn_cnt' needs argument 1");
}
