//! The load client on its own, to be compared with other ones: `bench ADDRESS PATH CONNECTIONS SECONDS [close|RATE]`.

use std::time::Duration;

use baton_prove::{Load, LoadOptions, Report, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, connections, seconds, rest @ ..] = words.as_slice() else {
        return Err("usage: bench ADDRESS PATH CONNECTIONS SECONDS [close|RATE]".into());
    };
    let mut options = LoadOptions::new(address.parse::<std::net::SocketAddr>()?);
    options.requests = vec![Request::get(path)];
    options.concurrency = connections.parse()?;
    options.duration = Some(Duration::from_secs_f64(seconds.parse()?));
    match rest {
        [] => {}
        [word] if word == "close" => options.keep_alive = false,
        [rate, ..] => options.rate = Some(rate.parse()?),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let report = Report::new(&runtime.block_on(Load::start(options)?.wait()));
    println!("{report}");
    println!("{}", report.to_json());
    println!("requests per CPU second of the client: {:.0}", report.completed as f64 / report.cpu_seconds);
    Ok(())
}
