//! The thread of peers.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::LocalSet;

use baton_peers::Start;

use super::running::Running;
use super::{Figures, Order, Plan};

/// How often it is looked whether sections that end have ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Starts the thread.
///
/// # Errors
/// The system's: nothing is shared then.
pub(super) fn start(orders: UnboundedReceiver<Order>, figures: Arc<Figures>) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let run = move || LocalSet::new().block_on(&runtime, Keeper { orders, figures, sections: Vec::new() }.run());
    thread::Builder::new().name("peers".into()).spawn(run).map(drop)
}

struct Keeper {
    orders: UnboundedReceiver<Order>,
    figures: Arc<Figures>,
    sections: Vec<Rc<Running>>,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            match self.orders.recv().await {
                Some(Order::Apply(plans, start)) => self.apply(plans, start),
                Some(Order::Close(id)) => self.sections.iter().for_each(|section| section.close_address(id)),
                Some(Order::Show { section, with_texts, reply }) => {
                    // Who asked may have left.
                    let _ = reply.send(self.show(&section, with_texts));
                }
                Some(Order::End { teaches }) => return self.finish(teaches).await,
                None => return,
            }
        }
    }

    fn apply(&mut self, plans: Vec<Plan>, start: Start) {
        let mut before = std::mem::take(&mut self.sections);
        for plan in plans {
            let at = before.iter().position(|running| running.plan.name == plan.section.name);
            let same = at.map(|at| before.swap_remove(at));
            match same {
                Some(running) if running.plan.is_same(&plan.section) && running.has_tables(&plan.tables) => {
                    running.lead(plan);
                    self.sections.push(running);
                }
                same => {
                    let date = jiff::Zoned::now().strftime("%d/%b/%Y:%H:%M:%S").to_string();
                    self.sections.extend(Running::start(plan, start, same, (date, self.figures.clone())));
                }
            }
        }
        before.iter().for_each(|running| running.close());
    }

    fn show(&self, name: &str, with_texts: bool) -> Option<String> {
        let mut out = String::new();
        let mut is_known = name.is_empty();
        // As HAProxy lists them: the last one of the configuration first.
        for (place, section) in self.sections.iter().enumerate().rev() {
            if name.is_empty() || *section.plan.name == *name {
                is_known = true;
                if !out.is_empty() {
                    out.push('\n');
                }
                out += &section.show(with_texts, place);
            }
        }
        is_known.then_some(out)
    }

    /// Ends all sections, each in its time.
    async fn finish(mut self, teaches: bool) {
        self.sections.iter().for_each(|section| section.end(teaches));
        loop {
            self.sections.retain(|section| !section.is_ended(teaches));
            self.figures.left.store(self.sections.len(), Ordering::Release);
            if self.sections.is_empty() {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        while let Some(order) = self.orders.recv().await {
            if let Order::Show { section, reply, .. } = order {
                let _ = reply.send(section.is_empty().then(String::new));
            }
        }
    }
}
