// One process that locks with jetcd, on one lease. It reads orders and answers as test/lab/rivals/go/main.go does, one at a time.

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.grpc.stub.StreamObserver;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

public class LockProgram {
  public static void main(String[] args) throws Exception {
    JsonObject task = JsonParser.parseString(args[0]).getAsJsonObject();
    String[] addresses =
        task.getAsJsonArray("addresses").asList().stream().map(each -> each.getAsString()).toArray(String[]::new);
    Client client = Client.builder().endpoints(addresses).build();
    long lease = client.getLeaseClient().grant(task.get("ttlSeconds").getAsLong()).get().getID();
    client.getLeaseClient().keepAlive(lease, new Renewals());
    tell("ready", 0, null);
    BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    ByteSequence key = null;
    for (String line = orders.readLine(); line != null; line = orders.readLine()) {
      JsonObject order = JsonParser.parseString(line).getAsJsonObject();
      int id = order.get("id").getAsInt();
      if (order.get("do").getAsString().equals("acquire")) {
        ByteSequence name = ByteSequence.from(order.get("name").getAsString(), StandardCharsets.UTF_8);
        key = client.getLockClient().lock(name, lease).get(60, TimeUnit.SECONDS).getKey();
        long fence = client.getKVClient().get(key).get().getKvs().get(0).getCreateRevision();
        tell("granted", id, fence);
      } else {
        client.getLockClient().unlock(key).get();
        tell("released", id, null);
      }
    }
    System.exit(70);
  }

  static void tell(String what, int id, Long fence) {
    JsonObject line = new JsonObject();
    line.addProperty("k", what);
    line.addProperty("id", id);
    if (fence != null) {
      line.addProperty("token", String.valueOf(fence));
    }
    System.out.println(line);
  }

  static class Renewals implements StreamObserver<LeaseKeepAliveResponse> {
    public void onNext(LeaseKeepAliveResponse answer) {}

    public void onError(Throwable error) {
      error.printStackTrace();
      System.exit(1);
    }

    public void onCompleted() {}
  }
}
