// The simulator bench's scenario for ns-3 (from its PyPI package): BulkSend over one point-to-point link.
// Arguments: bits/s, one-way delay in ms, flows, bytes a flow, window in bytes, CPU seconds at most, share lost.
// Prints packets sent on the link, CPU seconds, virtual seconds, peak memory in MB.
#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include <ctime>
#include <fstream>
#include <iostream>
#include <string>

using namespace ns3;

static uint64_t g_packets = 0;

static void
Sent(Ptr<const Packet>)
{
    ++g_packets;
}

static double
PeakMegabytes()
{
    std::ifstream status("/proc/self/status");
    std::string word;
    while (status >> word)
    {
        if (word == "VmHWM:")
        {
            double kb = 0;
            status >> kb;
            return kb * 1024 / 1e6;
        }
    }
    return 0;
}

int
main(int, char** argv)
{
    const std::string rate = std::string(argv[1]) + "bps";
    const std::string delay = std::string(argv[2]) + "ms";
    const uint32_t flows = std::stoul(argv[3]);
    const uint64_t bytes = std::stoull(argv[4]);
    const uint64_t window = std::stoull(argv[5]);
    const double cpuMost = std::stod(argv[6]);
    const double loss = std::stod(argv[7]);
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::TcpCubic")));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window));
    NodeContainer nodes;
    nodes.Create(2);
    PointToPointHelper link;
    link.SetDeviceAttribute("DataRate", StringValue(rate));
    link.SetChannelAttribute("Delay", StringValue(delay));
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000000p"));
    NetDeviceContainer devices = link.Install(nodes);
    if (loss > 0)
    {
        Ptr<RateErrorModel> errors = CreateObject<RateErrorModel>();
        errors->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
        errors->SetRate(loss);
        devices.Get(0)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
        devices.Get(1)->SetAttribute("ReceiveErrorModel", PointerValue(errors));
    }
    for (uint32_t i = 0; i < 2; ++i)
    {
        devices.Get(i)->TraceConnectWithoutContext("PhyTxEnd", MakeCallback(&Sent));
    }
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.0");
    Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
    ApplicationContainer sinks;
    for (uint32_t i = 0; i < flows; ++i)
    {
        const uint16_t port = 5001 + i;
        BulkSendHelper source("ns3::TcpSocketFactory", InetSocketAddress(interfaces.GetAddress(1), port));
        source.SetAttribute("MaxBytes", UintegerValue(bytes));
        source.SetAttribute("SendSize", UintegerValue(65536));
        source.Install(nodes.Get(0));
        PacketSinkHelper sink("ns3::TcpSocketFactory", InetSocketAddress(Ipv4Address::GetAny(), port));
        sinks.Add(sink.Install(nodes.Get(1)));
    }
    const std::clock_t before = std::clock();
    double cpu = 0;
    uint64_t received = 0;
    // In steps, to look at the CPU time in between.
    while (received < bytes * flows && cpu < cpuMost)
    {
        Simulator::Stop(MilliSeconds(100));
        Simulator::Run();
        cpu = double(std::clock() - before) / CLOCKS_PER_SEC;
        received = 0;
        for (uint32_t i = 0; i < sinks.GetN(); ++i)
        {
            received += DynamicCast<PacketSink>(sinks.Get(i))->GetTotalRx();
        }
    }
    std::cout << g_packets << ' ' << cpu << ' ' << Simulator::Now().GetSeconds() << ' ' << PeakMegabytes() << std::endl;
    return 0;
}
