//! How long a check waits for a server: time in which the server could have answered and we were there to see it.
//!
//! A timeout that is compared with the clock counts our own delays against the server: a control thread that reads a large file, or
//! a machine without a free core, comes back after the deadline and finds no response, because the request was never sent. So
//! the time is spent in turns. A turn that ends late costs no more than its own length; a response that is there at its end
//! counts, however late we look.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Turns that the whole time consists of: a delay of ours costs at most one of them.
const TURNS: u32 = 8;
/// Shorter turns would only wake us more often: the timer counts whole milliseconds.
const TURN_MIN: Duration = Duration::from_millis(2);

/// What is left of the time for a server.
#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
    turn: Duration,
}

/// The server did not respond in time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Exhausted;

impl Patience {
    pub(crate) fn new(whole: Duration) -> Patience {
        Patience { left: whole, turn: (whole / TURNS).max(TURN_MIN) }
    }

    /// The longest that may be waited before the next look.
    fn next(&self) -> Duration {
        self.left.min(self.turn)
    }

    /// A wait took so long.
    fn spend(&mut self, elapsed: Duration) {
        self.left = self.left.saturating_sub(elapsed.min(self.next()));
    }

    /// Runs `work` as long as there is time left. At least one look is taken at it.
    ///
    /// # Errors
    /// The time is spent, and `work` is not done.
    pub(crate) async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Exhausted> {
        let mut work = pin!(work);
        loop {
            let begun = Instant::now();
            // What is done counts before what the time is.
            let done = tokio::select! {
                biased;
                done = &mut work => Some(done),
                () = sleep(self.next()) => None,
            };
            self.spend(begun.elapsed());
            match done {
                Some(done) => return Ok(done),
                None if self.left.is_zero() => return Err(Exhausted),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;
    use tokio::time::advance;

    const WHOLE: Duration = Duration::from_millis(200);

    /// The clock is the test's: time passes only when nobody has anything to do, or by `advance`.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_nothing_has_its_time_and_no_more() {
        let begun = Instant::now();
        let mut patience = Patience::new(WHOLE);
        assert_eq!(patience.wait(std::future::pending::<()>()).await, Err(Exhausted));
        assert_eq!(begun.elapsed(), WHOLE);
        assert_eq!(patience.wait(std::future::pending::<()>()).await, Err(Exhausted), "nothing is left");
        assert!(begun.elapsed() < WHOLE + TURN_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_was_there_before_we_looked_is_not_late() {
        let (send, response) = oneshot::channel();
        let late = async {
            send.send(1).unwrap();
            // We were elsewhere for a second.
            advance(Duration::from_secs(1)).await;
        };
        let mut patience = Patience::new(WHOLE);
        let (found, ()) = tokio::join!(biased; patience.wait(response), late);
        assert_eq!(found, Ok(Ok(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_delay_does_not_count_against_the_server() {
        let mut patience = Patience::new(WHOLE);
        // The connection was there at once; we noticed a second later.
        let (found, ()) =
            tokio::join!(biased; patience.wait(tokio::task::yield_now()), advance(Duration::from_secs(1)));
        assert_eq!(found, Ok(()));
        // The request is sent only now: the server has most of its time to respond.
        let response = async {
            sleep(WHOLE / 2).await;
            7
        };
        assert_eq!(patience.wait(response).await, Ok(7));
    }

    #[tokio::test(start_paused = true)]
    async fn delays_one_after_the_other_end_too() {
        let mut patience = Patience::new(WHOLE);
        let mut turns = 0;
        let stalled = async {
            loop {
                turns += 1;
                advance(Duration::from_secs(1)).await;
                sleep(Duration::from_micros(1)).await;
            }
        };
        tokio::select! {
            biased;
            found = patience.wait(std::future::pending::<()>()) => assert_eq!(found, Err(Exhausted)),
            () = stalled => {}
        }
        assert!(turns <= 2 * TURNS, "{turns}");
    }
}
