//! The parts of a lab, and the commands that create it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The namespace that contains the bridges.
pub const SWITCH: &str = "switch";
const GATEWAY: &str = "gw";
/// The gateway's host number in each network.
const GATEWAY_NUMBER: u8 = 254;

/// The requested layout.
pub struct Layout {
    pub name: String,
    pub hosts: u8,
    pub mtu: u16,
    pub ipv4: Ipv4Addr,
    pub ipv6: Ipv6Addr,
    pub queues: u8,
    pub vlan: Option<u16>,
    pub topology: Topology,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topology {
    /// All hosts on one bridge.
    Bridge,
    /// Two hosts, connected directly.
    Cable,
    /// Two bridges with a router between them.
    Gateway,
}

/// See the [module](self).
pub struct Plan {
    layout: Layout,
    hosts: Vec<Host>,
    steps: Vec<Step>,
}

/// A host with addresses.
pub struct Host {
    pub name: String,
    /// The interface that has the addresses.
    pub interface: String,
    pub addresses: Vec<IpAddr>,
}

/// A step of the work, in this order.
#[derive(PartialEq, Eq, Debug)]
pub enum Step {
    /// Create a namespace.
    Namespace(String),
    /// Write to a file below `/proc/sys` of a namespace.
    Sysctl { namespace: String, key: &'static str, value: &'static str },
    /// Commands of `ip`, all in one namespace.
    Ip { namespace: String, commands: Vec<String> },
}

/// The name by which `ip netns` knows a host.
pub fn namespace(lab: &str, host: &str) -> String {
    format!("softrnic-{lab}-{host}")
}

impl Plan {
    /// # Errors
    /// The layout is invalid; the text says why.
    pub fn new(layout: Layout) -> Result<Plan, String> {
        layout.check()?;
        let mut plan = Plan { layout, hosts: Vec::new(), steps: Vec::new() };
        plan.namespaces();
        match plan.layout.topology {
            Topology::Cable => plan.cable(),
            Topology::Bridge => plan.bridges(1),
            Topology::Gateway => {
                plan.bridges(2);
                plan.router();
            }
        }
        for number in 1..=plan.layout.hosts {
            plan.host(number);
        }
        Ok(plan)
    }

    pub fn name(&self) -> &str {
        &self.layout.name
    }

    /// The hosts, without the gateway.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    fn namespaces(&mut self) {
        let mut names: Vec<String> = (1..=self.layout.hosts).map(host_name).collect();
        if self.layout.topology != Topology::Cable {
            names.push(SWITCH.into());
        }
        if self.layout.topology == Topology::Gateway {
            names.push(GATEWAY.into());
        }
        for name in names {
            let namespace = namespace(&self.layout.name, &name);
            self.steps.push(Step::Namespace(namespace.clone()));
            // Addresses are usable at once: a lab has no duplicates to detect.
            for key in ["net/ipv6/conf/all/accept_dad", "net/ipv6/conf/default/accept_dad"] {
                self.steps.push(Step::Sysctl { namespace: namespace.clone(), key, value: "0" });
            }
            if name == SWITCH {
                // A switch has no addresses of its own.
                let key = "net/ipv6/conf/default/disable_ipv6";
                self.steps.push(Step::Sysctl { namespace: namespace.clone(), key, value: "1" });
            }
            self.ip(&name, ["link set lo up".into()]);
        }
    }

    /// One end of each host's cable is in the switch, as a port of its network's bridge.
    fn bridges(&mut self, networks: u8) {
        let Layout { hosts, mtu, .. } = self.layout;
        let mut commands = Vec::new();
        for network in 0..networks {
            // Without snooping, multicast reaches every host without a querier.
            commands.push(format!("link add br{network} type bridge mcast_snooping 0"));
            commands.push(format!("link set br{network} mtu {mtu} up"));
        }
        for number in 1..=hosts {
            let name = host_name(number);
            let network = self.layout.network(number);
            commands.extend(self.port(&name, &name, "eth0", network));
        }
        if networks > 1 {
            for network in 0..networks {
                commands.extend(self.port(
                    &format!("gw{network}"),
                    GATEWAY,
                    &format!("eth{network}"),
                    network,
                ));
            }
        }
        self.ip(SWITCH, commands);
    }

    fn port(&self, port: &str, host: &str, interface: &str, network: u8) -> [String; 2] {
        let Layout { name, mtu, queues, .. } = &self.layout;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let namespace = namespace(name, host);
        [
            format!(
                "link add {port} mtu {mtu} {queues} type veth peer name {interface} netns {namespace} mtu {mtu} {queues}"
            ),
            format!("link set {port} master br{network} up"),
        ]
    }

    fn cable(&mut self) {
        let Layout { name, mtu, queues, .. } = &self.layout;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let other = namespace(name, &host_name(2));
        let command = format!(
            "link add eth0 mtu {mtu} {queues} type veth peer name eth0 netns {other} mtu {mtu} {queues}"
        );
        self.ip(&host_name(1), [command]);
    }

    fn router(&mut self) {
        let namespace = namespace(&self.layout.name, GATEWAY);
        for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
            self.steps.push(Step::Sysctl { namespace: namespace.clone(), key, value: "1" });
        }
        for network in 0..2 {
            let commands = self.layout.address_commands(&format!("eth{network}"), network, GATEWAY_NUMBER);
            self.ip(GATEWAY, commands);
        }
    }

    fn host(&mut self, number: u8) {
        let network = self.layout.network(number);
        let name = host_name(number);
        let mut commands = self.layout.address_commands("eth0", network, number);
        if self.layout.topology == Topology::Gateway {
            let [v4, v6] = self.layout.addresses(network, GATEWAY_NUMBER);
            commands.push(format!("route add default via {v4}"));
            commands.push(format!("route add ::/0 via {v6}"));
        }
        self.ip(&name, commands);
        let interface = self.layout.address_interface("eth0");
        let addresses = self.layout.addresses(network, number).to_vec();
        self.hosts.push(Host { name, interface, addresses });
    }

    fn ip(&mut self, host: &str, commands: impl IntoIterator<Item = String>) {
        let namespace = namespace(&self.layout.name, host);
        self.steps.push(Step::Ip { namespace, commands: commands.into_iter().collect() });
    }
}

impl Layout {
    fn check(&self) -> Result<(), String> {
        if self.topology == Topology::Cable && self.hosts != 2 {
            return Err("a cable joins two hosts, no more and no fewer".into());
        }
        if self.ipv4.octets()[3] != 0 || self.ipv4.is_multicast() || self.ipv4.is_loopback() {
            return Err(format!("{} is not a /24 network", self.ipv4));
        }
        if self.ipv4.octets()[2] == 255 && self.topology == Topology::Gateway {
            return Err(format!("no second network follows {}", self.ipv4));
        }
        if self.ipv6.to_bits() & u128::from(u64::MAX) != 0
            || self.ipv6.is_multicast()
            || self.ipv6.is_unspecified()
        {
            return Err(format!("{} is not a /64 network", self.ipv6));
        }
        Ok(())
    }

    /// The network that a host is in.
    fn network(&self, number: u8) -> u8 {
        if self.topology == Topology::Gateway { (number - 1) % 2 } else { 0 }
    }

    fn addresses(&self, network: u8, number: u8) -> [IpAddr; 2] {
        let v4 = self.ipv4.to_bits() + (u32::from(network) << 8) + u32::from(number);
        let v6 = self.ipv6.to_bits() + (u128::from(network) << 64) + u128::from(number);
        [Ipv4Addr::from_bits(v4).into(), Ipv6Addr::from_bits(v6).into()]
    }

    /// The interface on `eth` that gets the addresses.
    fn address_interface(&self, eth: &str) -> String {
        self.vlan.map_or_else(|| eth.to_owned(), |id| format!("{eth}.{id}"))
    }

    fn address_commands(&self, eth: &str, network: u8, number: u8) -> Vec<String> {
        let mut commands = vec![format!("link set {eth} up")];
        let interface = self.address_interface(eth);
        if let Some(id) = self.vlan {
            commands.push(format!("link add link {eth} name {interface} type vlan id {id}"));
            commands.push(format!("link set {interface} up"));
        }
        let [v4, v6] = self.addresses(network, number);
        commands.push(format!("addr add {v4}/24 dev {interface}"));
        commands.push(format!("addr add {v6}/64 dev {interface} nodad"));
        commands
    }
}

fn host_name(number: u8) -> String {
    format!("h{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(topology: Topology) -> Layout {
        Layout {
            name: "test".into(),
            hosts: 2,
            mtu: 1500,
            ipv4: Ipv4Addr::new(10, 1, 0, 0),
            ipv6: "fd00:1::".parse().expect("address"),
            queues: 1,
            vlan: None,
            topology,
        }
    }

    fn commands(plan: &Plan, host: &str) -> Vec<String> {
        let wanted = namespace("test", host);
        let in_host = plan.steps().iter().filter_map(|step| match step {
            Step::Ip { namespace, commands } if *namespace == wanted => Some(commands.clone()),
            _ => None,
        });
        in_host.flatten().collect()
    }

    #[test]
    fn hosts_have_addresses_of_both_families() {
        let plan = Plan::new(layout(Topology::Bridge)).expect("a plan");
        let addresses: Vec<_> =
            plan.hosts().iter().flat_map(|host| &host.addresses).map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["10.1.0.1", "fd00:1::1", "10.1.0.2", "fd00:1::2"]);
        assert!(commands(&plan, "h2").contains(&"addr add 10.1.0.2/24 dev eth0".into()));
        assert!(commands(&plan, "switch").contains(&"link set h1 master br0 up".into()));
    }

    #[test]
    fn behind_a_gateway_neighbours_are_in_different_networks() {
        let plan = Plan::new(Layout { hosts: 3, ..layout(Topology::Gateway) }).expect("a plan");
        let addresses: Vec<_> = plan.hosts().iter().map(|host| host.addresses[0].to_string()).collect();
        assert_eq!(addresses, ["10.1.0.1", "10.1.1.2", "10.1.0.3"]);
        assert_eq!(plan.hosts()[1].addresses[1].to_string(), "fd00:1:0:1::2");
        assert!(commands(&plan, "h2").contains(&"route add default via 10.1.1.254".into()));
        assert!(commands(&plan, "gw").contains(&"addr add fd00:1:0:1::fe/64 dev eth1 nodad".into()));
    }

    #[test]
    fn a_vlan_takes_the_addresses() {
        let plan = Plan::new(Layout { vlan: Some(7), ..layout(Topology::Cable) }).expect("a plan");
        let commands = commands(&plan, "h1");
        assert!(commands.contains(&"link add link eth0 name eth0.7 type vlan id 7".into()));
        assert!(commands.contains(&"addr add 10.1.0.1/24 dev eth0.7".into()));
        assert_eq!(plan.hosts()[0].interface, "eth0.7");
        assert!(!plan.steps().contains(&Step::Namespace(namespace("test", "switch"))));
    }

    #[test]
    fn invalid_layouts_are_refused() {
        let problem = |layout| Plan::new(layout).err().expect("a problem");
        assert!(problem(Layout { hosts: 3, ..layout(Topology::Cable) }).contains("two hosts"));
        let odd = Layout { ipv4: Ipv4Addr::new(10, 0, 0, 1), ..layout(Topology::Bridge) };
        assert_eq!(problem(odd), "10.0.0.1 is not a /24 network");
        let odd = Layout { ipv6: "fd00::1".parse().expect("address"), ..layout(Topology::Bridge) };
        assert_eq!(problem(odd), "fd00::1 is not a /64 network");
    }
}
