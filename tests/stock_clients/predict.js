// A prediction by @grpc/grpc-js from the .proto files: ADDRESS LEARNER EXAMPLES PROTO_FOLDER → labels on stdout.
"use strict";

const fs = require("fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, learner, examples, protos] = process.argv.slice(2);
const rows = JSON.parse(fs.readFileSync(examples, "utf8"));
const options = { includeDirs: [protos], keepCase: true, longs: Number, enums: String, oneofs: true };
const api = grpc.loadPackageDefinition(loader.loadSync("sharp/v1/prediction.proto", options)).sharp.v1;
const client = new api.Prediction(address, grpc.credentials.createInsecure());

const values = Float32Array.from(rows.flat());
const tensor = { dtype: "DTYPE_FLOAT32", shape: [rows.length, rows[0].length], data: Buffer.from(values.buffer) };
const deadline = new Date(Date.now() + 30000);

client.Predict({ learner, inputs: { tensor } }, { deadline }, (error, answer) => {
  if (error) {
    console.error(error.message);
    process.exit(1);
  }
  console.log(JSON.stringify(answer.labels.integers.values));
  // The same again over one long call, two questions at once.
  const labels = [];
  const call = client.PredictStream({ deadline });
  call.on("data", (message) => labels.push([message.id, message.response.labels.integers.values.length]));
  call.on("error", (failure) => {
    console.error(failure.message);
    process.exit(1);
  });
  call.on("end", () => {
    if (JSON.stringify(labels) !== JSON.stringify([[1, rows.length], [2, rows.length]])) {
      console.error(`unexpected answers ${JSON.stringify(labels)}`);
      process.exit(1);
    }
    client.close();
  });
  for (const id of [1, 2]) call.write({ id, request: { learner, inputs: { tensor } } });
  call.end();
});
