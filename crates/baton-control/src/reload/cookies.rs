//! Dynamic persistence cookies that operators switch and whose key they set. As in HAProxy this lasts until the next reload.

use std::sync::Arc;

use baton_model::Proxy;
use baton_proxy::Workers;

use super::ChangeLine;

/// What an operator wants of the dynamic cookie of a backend.
#[derive(Clone, Debug)]
pub(crate) enum DynamicCookie {
    /// Servers without a cookie of their own get one.
    Enabled,
    /// They get none.
    Disabled,
    /// Its values are made with this key.
    Key(String),
}

impl ChangeLine {
    /// Changes the dynamic cookie of a backend. Without a `cookie` line, and without a key, there is nothing to change.
    pub(super) async fn set_dynamic_cookie(
        &mut self,
        backend: &Arc<str>,
        wanted: DynamicCookie,
        workers: &Workers,
    ) -> Result<(), String> {
        let proxy = Arc::clone(self.model.backend(backend).ok_or("No such backend.")?);
        let used = proxy.cookie.as_ref().and_then(|cookie| cookie.dynamic_key.clone());
        if let Some(key) = &used {
            self.cookie_keys.insert(Arc::clone(backend), key.clone());
        }
        let key = match wanted {
            DynamicCookie::Disabled => None,
            DynamicCookie::Enabled => self.cookie_keys.get(backend).cloned(),
            DynamicCookie::Key(key) => {
                self.cookie_keys.insert(Arc::clone(backend), key.clone());
                used.as_ref().map(|_| key)
            }
        };
        let mut next = Proxy::clone(&proxy);
        match &mut next.cookie {
            Some(cookie) if key != used => cookie.dynamic_key = key,
            Some(_) | None => return Ok(()),
        }
        self.replace_servers(&Arc::new(next), workers).await;
        Ok(())
    }
}
