//! `userlist` sections: users, passwords and groups (configuration manual, 3.4).
//!
//! Lines have passwords in them, so no diagnostic about one shows its text.

use std::sync::Arc;

use baton_model::{Password, User, UserList};
use baton_rules::suggestion;

use crate::diagnostic::{Diagnostic, Severity};
use crate::lower::{Context, late};
use crate::syntax::{Line, Section};

/// A section while it is read: `group` lines may name users below them, and `user` lines groups.
pub(crate) struct UserListDraft {
    name: Arc<str>,
    users: Vec<(User, Line)>,
    /// Name, members, line.
    groups: Vec<(Box<str>, Vec<Box<str>>, Line)>,
}

const LINES: [&str; 2] = ["group", "user"];
const USER_OPTIONS: [&str; 3] = ["password", "insecure-password", "groups"];

/// Reads a section.
pub(crate) fn section(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name = head.word(1);
    let refused = match name.chars().find(|char| !crate::lower::is_name(*char)) {
        _ if name.is_empty() => Some(("missing-name", "'userlist' expects <name> as arguments.".to_string())),
        Some(odd) => Some(("bad-name", format!("character '{odd}' is not permitted in 'userlist' name '{name}'."))),
        None => None,
    };
    if let Some((id, message)) = refused {
        context.report.add(head.diagnostic(Severity::Alert, id, 1, message));
        return;
    }
    if !context.limit_arguments(head, 1) {
        return;
    }
    if context.userlists.iter().any(|list| *list.name == *name) {
        let message = format!("ignoring duplicated userlist '{name}'.");
        return context.report.add(head.diagnostic(Severity::Warning, "duplicate-name", 1, message));
    }
    let mut draft = UserListDraft { name: name.into(), users: Vec::new(), groups: Vec::new() };
    for line in &section.lines {
        match line.word(0) {
            "user" => user(&mut draft, line, context),
            "group" => group(&mut draft, line, context),
            word => {
                let message = format!("unknown keyword '{word}' in 'users' section");
                refuse(line, "unknown-keyword", message, suggestion(word, LINES), context);
            }
        }
    }
    context.userlists.push(draft);
}

/// `user NAME [password|insecure-password TEXT] [groups LIST]`.
fn user(draft: &mut UserListDraft, line: &Line, context: &mut Context<'_>) {
    let name = line.word(1);
    if name.is_empty() {
        return refuse(line, "missing-argument", "'user' expects <name> as arguments.".into(), None, context);
    }
    if draft.users.iter().any(|(user, _)| *user.name == *name) {
        let message = format!("ignoring duplicated user '{name}' in userlist '{}'.", draft.name);
        return context.report.add(hidden(line, Severity::Warning, "duplicate-name", message));
    }
    let mut user = User { name: name.into(), password: None, groups: Vec::new() };
    let mut at = 2;
    while at < line.words.len() {
        let (option, value) = (line.word(at), line.word(at + 1));
        match option {
            "password" => user.password = Some(Password::Hash(value.into())),
            "insecure-password" => user.password = Some(Password::Plain(value.into())),
            "groups" => user.groups.extend(names(value)),
            _ => {
                let message = "'user' only supports 'password', 'insecure-password' and 'groups' options.".into();
                return refuse(line, "unknown-option", message, suggestion(option, USER_OPTIONS), context);
            }
        }
        at += 2;
    }
    match &user.password {
        None => {
            let message = format!("user '{name}' of userlist '{}' has no password and cannot log in.", draft.name);
            context.report.add(hidden(line, Severity::Warning, "no-password", message));
        }
        Some(Password::Hash(hash)) if !baton_rules::passwords::is_known(hash) => {
            let message = format!(
                "the password of user '{name}' of userlist '{}' is no hash of a known kind: it never matches.",
                draft.name
            );
            let mut diagnostic = hidden(line, Severity::Warning, "unknown-hash", message);
            diagnostic.hint = Some("make one with `openssl passwd -6`, or use 'insecure-password'".into());
            context.report.add(diagnostic);
        }
        Some(_) => {}
    }
    draft.users.push((user, line.clone()));
}

/// `group NAME [users LIST]`.
fn group(draft: &mut UserListDraft, line: &Line, context: &mut Context<'_>) {
    let name = line.word(1);
    if name.is_empty() {
        return refuse(line, "missing-argument", "'group' expects <name> as arguments.".into(), None, context);
    }
    if draft.groups.iter().any(|(group, ..)| **group == *name) {
        let message = format!("ignoring duplicated group '{name}' in userlist '{}'.", draft.name);
        return context.report.add(hidden(line, Severity::Warning, "duplicate-name", message));
    }
    let mut members: Vec<Box<str>> = Vec::new();
    let mut at = 2;
    while at < line.words.len() {
        if line.word(at) != "users" {
            let hint = suggestion(line.word(at), ["users"]);
            let message = "'group' only supports 'users' option.".into();
            return refuse(line, "unknown-option", message, hint, context);
        }
        members.extend(names(line.word(at + 1)));
        at += 2;
    }
    draft.groups.push((name.into(), members, line.clone()));
}

/// Names between commas.
fn names(list: &str) -> impl Iterator<Item = Box<str>> {
    list.split(',').filter(|name| !name.is_empty()).map(Box::from)
}

/// Puts users and groups together, once all sections were read.
pub(crate) fn finish(context: &mut Context<'_>) -> Vec<Arc<UserList>> {
    let drafts = std::mem::take(&mut context.userlists);
    let lists: Vec<_> = drafts.into_iter().map(|draft| Arc::new(whole(draft, context))).collect();
    context.users.clone_from(&lists);
    lists
}

fn whole(draft: UserListDraft, context: &mut Context<'_>) -> UserList {
    let UserListDraft { name: list, mut users, groups } = draft;
    for (user, line) in &users {
        for missing in user.groups.iter().filter(|name| !groups.iter().any(|(group, ..)| group == *name)) {
            let message = format!("userlist '{list}': no such group '{missing}' specified in user '{}'", user.name);
            let hint = suggestion(missing, groups.iter().map(|(group, ..)| &**group));
            refuse(line, "unknown-name", message, hint, context);
        }
    }
    for (group, members, line) in &groups {
        for member in members {
            match users.iter_mut().find(|(user, _)| user.name == *member) {
                Some((user, _)) if user.groups.contains(group) => {}
                Some((user, _)) => user.groups.push(group.clone()),
                None => {
                    let message = format!("userlist '{list}': no such user '{member}' specified in group '{group}'");
                    let hint = suggestion(member, users.iter().map(|(user, _)| &*user.name));
                    refuse(line, "unknown-name", message, hint, context);
                }
            }
        }
    }
    UserList {
        name: list,
        users: users.into_iter().map(|(user, _)| user).collect(),
        groups: groups.into_iter().map(|(group, ..)| group).collect(),
    }
}

/// Reports an error about a line.
fn refuse(line: &Line, id: &'static str, message: String, hint: Option<String>, context: &mut Context<'_>) {
    let mut diagnostic = hidden(line, Severity::Alert, id, message);
    diagnostic.hint = hint;
    context.report.add(diagnostic);
}

/// A diagnostic that does not show the line: it may have a password in it.
fn hidden(line: &Line, severity: Severity, id: &'static str, message: String) -> Diagnostic {
    let mut diagnostic = late(line, severity, id, 0, message);
    diagnostic.late = false;
    diagnostic.columns = None;
    diagnostic.text.clear();
    diagnostic
}
