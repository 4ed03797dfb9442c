// Names of services and of pods behind headless services, for the pods of a real node: as much of the cluster's DNS as jobs use.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	zone         = "cluster.local."
	timeToLive   = 1 // seconds: what was looked up before a pod was there must not stay wrong for long
	largestQuery = 4096
	largestReply = 1232
	indexService = "service"
)

type nameServer struct {
	services cache.Store
	slices   cache.Indexer
}

func serveNames(args []string) error {
	flags := flag.NewFlagSet("dns", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	address := flags.String("address", "127.0.0.1:53", "where to listen, UDP and TCP")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services().Informer()
	slices := factory.Discovery().V1().EndpointSlices().Informer()
	if err := slices.AddIndexers(cache.Indexers{indexService: serviceOfSlice}); err != nil {
		return err
	}
	server := &nameServer{services: services.GetStore(), slices: slices.GetIndexer()}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return server.serve(ctx, *address)
}

func serviceOfSlice(object any) ([]string, error) {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

func (s *nameServer) serve(ctx context.Context, address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	streams, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { packets.Close(); streams.Close() })
	var both sync.WaitGroup
	both.Go(func() { s.servePackets(packets) })
	both.Go(func() { s.serveStreams(streams) })
	both.Wait()
	if ctx.Err() == nil {
		return fmt.Errorf("no longer listening on %s", address)
	}
	return nil
}

func (s *nameServer) servePackets(packets net.PacketConn) {
	buffer := make([]byte, largestQuery)
	for {
		size, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return
		}
		if reply := s.reply(buffer[:size], largestReply); reply != nil {
			_, _ = packets.WriteTo(reply, from)
		}
	}
}

func (s *nameServer) serveStreams(streams net.Listener) {
	for {
		stream, err := streams.Accept()
		if err != nil {
			return
		}
		go func() {
			defer stream.Close()
			_ = stream.SetDeadline(time.Now().Add(10 * time.Second))
			buffer := make([]byte, 2+largestQuery)
			size, err := stream.Read(buffer)
			if err != nil || size < 2 {
				return
			}
			if reply := s.reply(buffer[2:size], 65535); reply != nil {
				_, _ = stream.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
			}
		}()
	}
}

// reply is nil for what is not a question.
func (s *nameServer) reply(query []byte, largest int) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil
	}
	question, err := parser.Question()
	if err != nil {
		return nil
	}
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, Authoritative: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true,
		},
		Questions: []dnsmessage.Question{question},
	}
	addresses, known := s.addresses(strings.ToLower(question.Name.String()))
	if !known {
		message.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA || question.Type == dnsmessage.TypeALL {
		for _, address := range addresses {
			message.Answers = append(message.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: timeToLive},
				Body:   &dnsmessage.AResource{A: address},
			})
		}
	}
	packed, err := message.Pack()
	if err == nil && len(packed) > largest {
		message.Truncated, message.Answers = true, nil
		packed, err = message.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

// addresses of SERVICE.NAMESPACE.svc.cluster.local and HOST.SERVICE.NAMESPACE.svc.cluster.local; false when there is no such name.
func (s *nameServer) addresses(name string) ([][4]byte, bool) {
	inside, ok := strings.CutSuffix(name, ".svc."+zone)
	if !ok {
		return nil, false
	}
	labels := strings.Split(inside, ".")
	if len(labels) < 2 || len(labels) > 3 {
		return nil, false
	}
	key := labels[len(labels)-1] + "/" + labels[len(labels)-2]
	found, exists, err := s.services.GetByKey(key)
	if err != nil || !exists {
		return nil, false
	}
	service, ok := found.(*corev1.Service)
	if !ok {
		return nil, false
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		if address, ok := ipv4(service.Spec.ClusterIP); ok && len(labels) == 2 {
			return [][4]byte{address}, true
		}
		return nil, false
	}
	host := ""
	if len(labels) == 3 {
		host = labels[0]
	}
	addresses := s.endpoints(key, host, service.Spec.PublishNotReadyAddresses)
	return addresses, host == "" || len(addresses) > 0
}

func (s *nameServer) endpoints(key, host string, alsoNotReady bool) [][4]byte {
	slices, err := s.slices.ByIndex(indexService, key)
	if err != nil {
		return nil
	}
	var addresses [][4]byte
	for _, object := range slices {
		slice, ok := object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if !ready && !alsoNotReady || host != "" && (endpoint.Hostname == nil || *endpoint.Hostname != host) {
				continue
			}
			for _, text := range endpoint.Addresses {
				if address, ok := ipv4(text); ok {
					addresses = append(addresses, address)
				}
			}
		}
	}
	return addresses
}

func ipv4(text string) ([4]byte, bool) {
	address := net.ParseIP(text).To4()
	if address == nil {
		return [4]byte{}, false
	}
	return [4]byte(address), true
}
