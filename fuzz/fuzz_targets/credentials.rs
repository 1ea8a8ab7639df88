//! What a client claims to be: Basic and Bearer credentials, JSON Web Tokens and cookies. No panic, nobody gets in without the right
//! password, and no token passes whose signature is not over what it says. The input is the value of `Authorization`, a NUL, and the
//! value of `Cookie`.
#![no_main]

#[path = "../../crates/baton-rules/tests/common/mod.rs"]
mod common;

use std::io;
use std::sync::Arc;

use baton_http::{Limits, Parsed, RequestHead};
use baton_model::{Password, User, UserList};
use baton_rules::{Context, Expr, Files, RulePosition};
use libfuzzer_sys::fuzz_target;

/// The key of HMAC, in the place of a file.
const SECRET: &str = "secret";

/// The content of every file: a public key, of which nobody has the other half.
const PUBLIC_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE4nJBc+D9YOWV5r81YIGPM2cukDec
WMMnmjGHCmPZS4pl5ugNKL0QXkW6OkKaEquur4M/tawDqDRvjg1kj2IH6A==
-----END PUBLIC KEY-----
";

struct Users(Arc<UserList>);

impl Files for Users {
    fn read(&self, _: &str) -> io::Result<Vec<u8>> {
        Ok(PUBLIC_KEY.into())
    }

    fn users(&self, _: &str) -> Option<Arc<UserList>> {
        Some(self.0.clone())
    }
}

const OTHERS: [&str; 13] = [
    "http_auth_type",
    "http_auth_bearer",
    "http_auth_bearer(cookie)",
    "http_auth_bearer,jwt_header_query('$.alg')",
    "http_auth_bearer,jwt_payload_query('$.exp','int')",
    "http_auth_bearer,jwt_payload_query('$.a[1].b')",
    "http_auth_bearer,jwt_verify(ES256,key)",
    "http_auth_bearer,jwt_verify(RS512,key)",
    "http_auth_bearer,jwt_verify(PS256,key)",
    "req.cook(SRV)",
    "req.cook()",
    "req.cook_cnt(a)",
    "req.cook_val(a)",
];

thread_local! {
    static COMPILED: Compiled = Compiled::new();
}

struct Compiled {
    admits: Expr,
    group: Expr,
    user: Expr,
    password: Expr,
    token: Expr,
    verifies: Expr,
    others: Vec<Expr>,
}

impl Compiled {
    fn new() -> Compiled {
        let user = |name: &str, password| User { name: name.into(), password, groups: vec!["staff".into()] };
        let users = vec![
            user("alice", Some(Password::Plain("open sesame".into()))),
            user("bob", Some(Password::Hash("$1$abc$BXBqpb9BZcZhXLgbee.0s/".into()))),
            user("", Some(Password::Plain("".into()))),
            user("nobody", None),
        ];
        let files = Users(Arc::new(UserList { name: "staff".into(), users, groups: vec!["staff".into()] }));
        let compile = |text: &str| Expr::compile(text, RulePosition::BackendRequest, &files).expect(text);
        Compiled {
            admits: compile("http_auth(staff)"),
            group: compile("http_auth_group(staff)"),
            user: compile("http_auth_user"),
            password: compile("http_auth_pass"),
            token: compile("http_auth_bearer"),
            verifies: compile(&format!("http_auth_bearer,jwt_verify(HS256,{SECRET})")),
            others: OTHERS.map(compile).into(),
        }
    }

    fn judge(&self, cx: &Context<'_>) {
        let text = |expr: &Expr| expr.eval(cx).map(|sample| sample.into_text().into_owned());
        let (user, password) = (text(&self.user), text(&self.password));
        assert_eq!(user.is_some(), password.is_some());
        let admitted = text(&self.admits).as_deref() == Some(b"1");
        assert_eq!(admitted, text(&self.group).is_some());
        if admitted {
            let pair = (user.unwrap_or_default(), password.unwrap_or_default());
            let known: [(&[u8], &[u8]); 3] = [(b"alice", b"open sesame"), (b"bob", b"password"), (b"", b"")];
            assert!(known.contains(&(&pair.0, &pair.1)), "{pair:?}");
        }
        if text(&self.verifies).as_deref() == Some(b"1") {
            let token = text(&self.token).expect("it was verified");
            let end = token.iter().rposition(|byte| *byte == b'.').expect("a signature");
            let signed = String::from_utf8(token[..end].to_vec()).expect("letters of Base64");
            let again = format!("str({signed}),hmac(sha256,{}),ub64enc", base64_of(SECRET));
            let again = Expr::compile(&again, RulePosition::BackendRequest, &common::files()).expect("an expression");
            let signature = again.eval(cx).expect("a text").into_text().into_owned();
            assert_eq!(signature, token[end + 1..].trim_ascii_end(), "of {signed}");
        }
        self.others.iter().for_each(|expr| drop(text(expr)));
    }
}

fn base64_of(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (authorization, cookie) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let request =
        [&b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: "[..], authorization, b"\r\nCookie: ", cookie, b"\r\n\r\n"]
            .concat();
    if matches!(RequestHead::new().parse(&request, &Limits::default()), Ok(Parsed::Complete(_))) {
        COMPILED.with(|compiled| common::with_bytes(&request, None, None, None, |cx| compiled.judge(cx)));
    }
});
