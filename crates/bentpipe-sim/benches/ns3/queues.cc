// A queue discipline of ns-3 (from its PyPI package) that another program uses, for the bench queue_delays.
//
// Arguments: discipline, target in ns, interval in ns, CoDel's MinBytes. Reads commands, a line each, in the order of time:
//   e NS BYTES SOURCE_PORT DESTINATION_PORT    a packet arrives; packets are numbered from 0
//   d NS                                       the next packet leaves
// and answers each with a line: the number of the packet that leaves (-1: none), then the numbers of those dropped.
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"
#include <cinttypes>
#include <cstdio>
#include <string>
#include <unordered_map>
#include <vector>

using namespace ns3;

// Numbers of packets by ns-3's identifiers.
static std::unordered_map<uint64_t, int64_t> g_numbers;
static std::vector<int64_t> g_dropped;

static int64_t
NumberOf(Ptr<const QueueDiscItem> item)
{
    auto found = g_numbers.find(item->GetPacket()->GetUid());
    const int64_t number = found->second;
    g_numbers.erase(found);
    return number;
}

static void
Dropped(Ptr<const QueueDiscItem> item)
{
    g_dropped.push_back(NumberOf(item));
}

static Ptr<QueueDisc>
Make(const std::string& kind, int64_t target, int64_t interval, uint64_t minBytes)
{
    ObjectFactory factory;
    const QueueSizeValue size(QueueSize("10240p"));
    if (kind == "pie")
    {
        factory.SetTypeId("ns3::PieQueueDisc");
        factory.Set("MaxSize", size);
        factory.Set("QueueDelayReference", TimeValue(NanoSeconds(target)));
        // RFC 8033 section 4.4; ns-3's default is 15 ms.
        factory.Set("MaxBurstAllowance", TimeValue(MilliSeconds(150)));
        return factory.Create<QueueDisc>();
    }
    Config::SetDefault("ns3::CoDelQueueDisc::MinBytes", UintegerValue(minBytes));
    factory.SetTypeId(kind == "codel" ? "ns3::CoDelQueueDisc" : "ns3::FqCoDelQueueDisc");
    factory.Set("MaxSize", size);
    factory.Set("Target", StringValue(std::to_string(target) + "ns"));
    factory.Set("Interval", StringValue(std::to_string(interval) + "ns"));
    Ptr<QueueDisc> disc = factory.Create<QueueDisc>();
    if (Ptr<FqCoDelQueueDisc> flows = DynamicCast<FqCoDelQueueDisc>(disc))
    {
        flows->SetQuantum(1500);
    }
    return disc;
}

// A packet with these ports, by which flows are told apart.
static Ptr<QueueDiscItem>
PacketOf(uint32_t bytes, uint16_t source, uint16_t destination, int64_t number)
{
    UdpHeader udp;
    udp.SetSourcePort(source);
    udp.SetDestinationPort(destination);
    Ipv4Header ip;
    ip.SetSource(Ipv4Address("10.0.0.1"));
    ip.SetDestination(Ipv4Address("10.0.0.2"));
    ip.SetProtocol(17);
    ip.SetPayloadSize(bytes - ip.GetSerializedSize());
    Ptr<Packet> packet = Create<Packet>(bytes - ip.GetSerializedSize() - udp.GetSerializedSize());
    packet->AddHeader(udp);
    g_numbers[packet->GetUid()] = number;
    return Create<Ipv4QueueDiscItem>(packet, Address(), 0x0800, ip);
}

int
main(int, char** argv)
{
    Ptr<QueueDisc> disc = Make(argv[1], std::stoll(argv[2]), std::stoll(argv[3]), std::stoull(argv[4]));
    disc->TraceConnectWithoutContext("Drop", MakeCallback(&Dropped));
    disc->Initialize();
    int64_t arrivals = 0;
    char what = 0;
    int64_t at = 0;
    while (std::scanf(" %c %" SCNd64, &what, &at) == 2)
    {
        const Time time = NanoSeconds(at);
        if (time > Simulator::Now())
        {
            Simulator::Stop(time - Simulator::Now());
            Simulator::Run();
        }
        int64_t leaves = -1;
        if (what == 'e')
        {
            unsigned bytes = 0;
            unsigned source = 0;
            unsigned destination = 0;
            if (std::scanf("%u %u %u", &bytes, &source, &destination) != 3)
            {
                return 1;
            }
            disc->Enqueue(PacketOf(bytes, source, destination, arrivals++));
        }
        else if (Ptr<QueueDiscItem> item = disc->Dequeue())
        {
            leaves = NumberOf(item);
        }
        std::printf("%" PRId64, leaves);
        for (const int64_t number : g_dropped)
        {
            std::printf(" %" PRId64, number);
        }
        g_dropped.clear();
        std::printf("\n");
        std::fflush(stdout);
    }
    return 0;
}
