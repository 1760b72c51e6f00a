use bentpipe_host::{emulation::*, namespace::*, spawn::*, topology::*};
use bentpipe_link::catalogue;
fn main() {
    let p = acquire_privilege().unwrap();
    println!("{p:?}");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let config =
        catalogue::named(&args[0]).unwrap().unwrap().with(catalogue::parse_override(&args[1]).unwrap()).unwrap();
    let spec = LinkSpec {
        name: "sat".into(),
        sites: vec!["hub".into(), "terminal".into()],
        carries_ethernet: config.carries_ethernet,
        mtu: config.mtu,
    };
    let setup = Setup { links: vec![(spec, config)], seed: 1, ..Default::default() };
    let setup = Setup { resolver: bentpipe_host::internet::resolver_text(), ..setup };
    let e = Emulation::start(&setup, p).unwrap();
    let net = bentpipe_host::internet::start(
        &e,
        0,
        &[1],
        bentpipe_host::internet::InternetOptions { reach_machine_loopback: std::env::var_os("NOLOOP").is_none() },
    );
    let net = match net {
        Ok(n) => n,
        Err(x) => {
            println!("{x}");
            return;
        }
    };
    println!("{}", net.description());
    let site = if std::env::var_os("ATHUB").is_some() { 0 } else { 1 };
    let mut c = e
        .spawn(
            site,
            CommandSpec {
                argv: args[2..].iter().map(|s| s.into()).collect(),
                environment: vec![],
                output: Output::Inherit,
                own_group: false,
            },
        )
        .unwrap();
    println!("{:?}", c.wait());
    net.stop();
    let o = e.finish();
    println!(
        "packets {} p50 {:?} p99 {:?} worst {:?}",
        o.pump.lateness.packets(),
        o.pump.lateness.quantile(0.5),
        o.pump.lateness.quantile(0.99),
        o.pump.lateness.worst().first()
    );
}
