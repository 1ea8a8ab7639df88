//! The end of a load: its in-flight requests get their time and are then cut off.

use std::time::Duration;

use tokio::time::timeout;

use crate::{LoadHandle, LoadResult};

/// How long in-flight requests may take at the end.
const END_MAX: Duration = Duration::from_secs(5);
/// How long they may take after that, when something was done to end them: a client whose server vanished with its network hears nothing of
/// it, and would wait for as long as its load allows.
const CUT_AFTER: Duration = Duration::from_secs(1);

/// Ends a load. When its requests do not end in time, `hasten` is called, which may kill their server; what does not end then either is cut
/// off.
pub(crate) async fn end(load: LoadHandle, hasten: impl FnOnce()) -> LoadResult {
    let cutter = load.cutter();
    let mut ending = std::pin::pin!(load.stop());
    if let Ok(result) = timeout(END_MAX, &mut ending).await {
        return result;
    }
    hasten();
    if let Ok(result) = timeout(CUT_AFTER, &mut ending).await {
        return result;
    }
    cutter.stop();
    ending.await
}
