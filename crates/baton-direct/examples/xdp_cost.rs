//! What a packet costs in the program of the engine `xdp`, as the connections that it remembers grow: `bench/xdp` runs it.
//!
//! Needs root and a kernel with BPF. It works in a network namespace and a BPF file system of its own, and sends nothing.

#[cfg(not(feature = "bpf"))]
fn main() {
    eprintln!("xdp_cost: built without the engine; use `--features bpf`, which takes clang");
    std::process::exit(1);
}

#[cfg(feature = "bpf")]
fn main() {
    if let Err(why) = measure::all() {
        eprintln!("xdp_cost: {why}");
        std::process::exit(1);
    }
}

#[cfg(feature = "bpf")]
mod measure {
    use std::error::Error;

    use baton_direct::maglev::{Member, table};
    use baton_kernel::bpf::direct::{Direct, HASH_PORT, OwnMac, Place, Server, Service, TABLE, TCP, Verdict};
    use baton_kernel::netns;
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    /// How many connections are remembered.
    const FLOWS: [u32; 4] = [100, 1_000, 10_000, 100_000];
    /// Packets for each figure, each of another connection than the one before.
    const PACKETS: u32 = 100_000;
    const SERVERS: u32 = 8;
    const VIP: [u8; 4] = [192, 0, 2, 1];
    const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// A step through the connections that meets all of them and has no order that a cache could know: a prime, and no divisor of
    /// their numbers.
    const STEP: u32 = 48_271;

    type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

    pub(crate) fn all() -> Outcome<()> {
        netns::in_new(|| {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount::<str, str, str, str>(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
            mount::<str, str, str, str>(Some("bpf"), "/sys/fs/bpf", Some("bpf"), MsFlags::empty(), None)?;
            println!("connections  ns a packet (median)  of it for a packet that passes");
            FLOWS.into_iter().try_for_each(one)
        })?
    }

    fn one(flows: u32) -> Outcome<()> {
        let folder = baton_kernel::bpf::direct::folder()?;
        // Each processor may remember its share only, and this is one.
        let mut direct = Direct::make(&folder, flows * 4 * std::thread::available_parallelism()?.get() as u32)?;
        direct.set_macs(&[OwnMac { interface: 1, address: OURS, zero: 0 }])?;
        let place = Place::new(TCP, (VIP, 80).into());
        let service = Service { is_used: 1, flags: HASH_PORT, mask: [0xff; 16], place, ..Service::default() };
        direct.set_service(0, &service)?;
        direct.set_place(&place, 0)?;
        for slot in 0..SERVERS {
            let to = [2, 0, 0, 0, 1, slot as u8];
            direct.set_server(
                slot,
                &Server { generation: 1, interface: 1, weight: 1, to, from: OURS, ..Server::default() },
            )?;
        }
        let members: Vec<Member> =
            (0..SERVERS).map(|slot| Member { name: slot.to_string().into_bytes(), weight: 1 }).collect();
        let entries = table(&members, TABLE).try_into().map_err(|_| "a table has another size")?;
        direct.set_table(0, &entries)?;
        for flow in 0..flows {
            let (verdict, _) = direct.run(&packet(flow))?;
            if verdict != Verdict::Send {
                return Err(format!("the program says {verdict:?} of a packet for a service").into());
            }
        }
        let mut costs = Vec::with_capacity(PACKETS as usize);
        for number in 0..PACKETS {
            let flow = (u64::from(number) * u64::from(STEP) % u64::from(flows)) as u32;
            costs.push(direct.time(&packet(flow), 1)?);
        }
        let counted = direct.counted_of_service(0)?;
        if counted.connections != u64::from(flows) {
            return Err(format!("{} connections instead of {flows}: some were forgotten", counted.connections).into());
        }
        // The same with a packet that is none of IP: the clock and the call.
        let mut other = packet(0);
        other[12..14].copy_from_slice(&[8, 6]);
        let mut idle = Vec::with_capacity(PACKETS as usize);
        for _ in 0..PACKETS {
            idle.push(direct.time(&other, 1)?);
        }
        println!("{flows:>11}  {:>20}  {:>30}", median(costs), median(idle));
        direct.remove()?;
        Ok(())
    }

    fn median(mut all: Vec<u64>) -> u64 {
        all.sort_unstable();
        all[all.len() / 2]
    }

    /// An ACK without data in a frame.
    fn packet(flow: u32) -> Vec<u8> {
        let mut frame = [OURS, [2, 0, 0, 0, 0, 9]].concat();
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        frame.extend([10, 0, (flow >> 22) as u8, (flow >> 14) as u8]);
        frame.extend(VIP);
        frame.extend((1024 + (flow & 0x3fff) as u16).to_be_bytes());
        frame.extend([0, 80, 0, 0, 0, 7, 0, 0, 0, 9, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
        frame
    }
}
