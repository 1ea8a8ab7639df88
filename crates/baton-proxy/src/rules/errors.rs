//! Which response an error has: the backend's own for its status, else the frontend's, else the standard one (configuration manual 4.2
//! `errorfile`, `errorloc`, `http-error`).

use baton_http::RequestMut;
use baton_model::ErrorPage;
use baton_rules::{Body, ProxyRules, Request, ResponseSource};

use super::{EvaluationContext, composed, run, scene};
use crate::core::Core;
use crate::exchange::Exchange;
use crate::messages::Messages;
use crate::pages;
use crate::view::BackendView;

/// The response to a request with this status, as a server would send it. It is empty where an empty file says that there is none.
pub fn error_page(core: &Core, exchange: &mut Exchange<'_>, backend: Option<&BackendView>, status: u16) -> Vec<u8> {
    let frontend = exchange.progress.frontend.clone();
    let plans = [
        backend.map(|backend| (&backend.plan.proxy, &backend.plan.rules)),
        Some((&frontend.plan.proxy, &frontend.plan.rules)),
    ];
    let own =
        plans.into_iter().flatten().find_map(|(proxy, rules)| Some((own(&proxy.http.error_pages, status)?, rules)));
    let mut page = Vec::new();
    match own {
        Some((ErrorPage::File(file), _)) => page.extend_from_slice(&file.content),
        Some((ErrorPage::Found(location), _)) => pages::redirect(302, location, &mut page),
        Some((ErrorPage::SeeOther(location), _)) => pages::redirect(303, location, &mut page),
        Some((ErrorPage::Rule, rules)) => return evaluated(core, exchange, rules, backend, status),
        None => pages::standard(status, &mut page),
    }
    page
}

/// Whether an empty file says that there is no response with this status to what was no request.
pub fn is_silent(exchange: &Exchange<'_>, status: u16) -> bool {
    let progress = &exchange.progress;
    let proxies = [progress.backend().map(|backend| &backend.plan.proxy), Some(&progress.frontend.plan.proxy)];
    let own = proxies.into_iter().flatten().find_map(|proxy| own(&proxy.http.error_pages, status));
    matches!(own, Some(ErrorPage::File(file)) if file.content.is_empty())
}

fn own(pages: &[(u16, ErrorPage)], status: u16) -> Option<&ErrorPage> {
    pages.iter().find(|(code, _)| *code == status).map(|(_, page)| page)
}

/// What an `http-error` rule makes of the request, of which the body may be gone.
fn evaluated(
    core: &Core,
    exchange: &mut Exchange<'_>,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
    status: u16,
) -> Vec<u8> {
    let about = EvaluationContext { backend, sees_server: true, ..EvaluationContext::default() };
    let (scene, messages) = scene(exchange, about);
    let Messages { request, input, .. } = &mut **messages;
    let request = Request { head: RequestMut::new(request, input.pinned()), body: Body::NONE, complete: true };
    let (response, said) = run(core, scene, about, Some(request), None, |cx| rules.http_error(status, cx));
    exchange.heed(said);
    match response.map(|response| response.source) {
        Some(ResponseSource::Composed(reply)) => composed(&reply),
        Some(ResponseSource::File(content)) => content.to_vec(),
        Some(ResponseSource::ErrorPage) | None => {
            let mut page = Vec::new();
            pages::standard(status, &mut page);
            page
        }
    }
}
