import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import software.amazon.event.ruler.Machine;

/** Reads lines {"pattern": ..., "events": [...]}; prints a 1 for each event that the pattern matches, else a 0. */
public class EventRuler {
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode given = mapper.readTree(line);
            Machine machine = new Machine();
            machine.addRule("rule", mapper.writeValueAsString(given.get("pattern")));
            StringBuilder out = new StringBuilder();
            for (JsonNode event : given.get("events")) {
                boolean found = !machine.rulesForJSONEvent(mapper.writeValueAsString(event)).isEmpty();
                out.append(found ? '1' : '0');
            }
            System.out.println(out);
        }
    }
}
