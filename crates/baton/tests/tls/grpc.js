// gRPC by Node, servers and clients in clear text and over TLS: all four kinds of calls, an error, a deadline.
//
// usage: grpc.js CLEAR_SERVER_PORT TLS_SERVER_PORT CLEAR_PROXY_PORT TLS_PROXY_PORT AUTHORITY CERTIFICATE

const fs = require('fs');
const folder = require('child_process').execSync('npm root -g').toString().trim();
const grpc = require(`${folder}/@grpc/grpc-js`);

const [clearServer, tlsServer, clear, tls, authority, certificate] = process.argv.slice(2);
const same = (bytes) => bytes;
const method = (name, requestStream, responseStream) => ({
  path: `/t/${name}`, requestStream, responseStream,
  requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
});
const definition = {
  echo: method('Echo', false, false),
  fail: method('Fail', false, false),
  slow: method('Slow', false, false),
  down: method('Down', false, true),
  up: method('Up', true, false),
  chat: method('Chat', true, true),
};
const calls = {
  echo: (call, done) => done(null, call.request),
  fail: (call, done) => done({ code: grpc.status.NOT_FOUND, details: 'there is none' }),
  slow: () => {},
  down: (call) => {
    for (let number = Number(call.request); number > 0; number--) call.write(Buffer.alloc(1000, 'x'));
    call.end();
  },
  up: (call, done) => {
    let size = 0;
    call.on('data', (bytes) => { size += bytes.length; });
    call.on('end', () => done(null, Buffer.from(String(size))));
  },
  chat: (call) => {
    call.on('data', (bytes) => call.write(bytes));
    call.on('end', () => {
      const trailers = new grpc.Metadata();
      trailers.set('x-end', '1');
      call.end(trailers);
    });
  },
};

function serve(port, credentials) {
  const server = new grpc.Server();
  server.addService(definition, calls);
  return new Promise((done, failed) => {
    server.bindAsync(`127.0.0.1:${port}`, credentials, (error) => (error ? failed(error) : done(server)));
  });
}

const Client = grpc.makeGenericClientConstructor(definition, 't');
const reply = (start) => new Promise((done) => {
  start((error, bytes) => done(error ? `${grpc.status[error.code]} ${error.details}` : String(bytes)));
});

async function ask(name, client) {
  const say = (...words) => console.log(`${name}:`, ...words);
  say('echo', await reply((done) => client.echo(Buffer.from('hello'), done)));
  say('fail', await reply((done) => client.fail(Buffer.from(''), done)));
  const deadline = { deadline: Date.now() + 200 };
  say('deadline', await reply((done) => client.slow(Buffer.from(''), deadline, done)));
  let size = 0;
  for await (const bytes of client.down(Buffer.from('3000'))) size += bytes.length;
  say('down', size);
  say('up', await reply((done) => {
    const call = client.up(done);
    for (let number = 0; number < 30; number++) call.write(Buffer.alloc(100000, 'x'));
    call.end();
  }));
  const chat = client.chat();
  const trailers = new Promise((done) => chat.on('status', (status) => done(status.metadata.get('x-end'))));
  let count = 0;
  chat.write(Buffer.from('0'));
  for await (const bytes of chat) {
    if (String(bytes) !== String(count)) break;
    count += 1;
    if (count < 50) chat.write(Buffer.from(String(count))); else chat.end();
  }
  say('chat', count, await trailers);
  const all = Array.from({ length: 300 }, (_, number) => reply((done) => client.echo(Buffer.from(String(number)), done)));
  say('calls', (await Promise.all(all)).filter((text, number) => text === String(number)).length);
}

(async () => {
  const pem = fs.readFileSync(certificate);
  await serve(clearServer, grpc.ServerCredentials.createInsecure());
  await serve(tlsServer, grpc.ServerCredentials.createSsl(null, [{ private_key: pem, cert_chain: pem }]));
  await ask('clear', new Client(`127.0.0.1:${clear}`, grpc.credentials.createInsecure()));
  await ask('tls', new Client(`127.0.0.1:${tls}`, grpc.credentials.createSsl(fs.readFileSync(authority))));
  process.exit(0);
})().catch((error) => { console.error(error); process.exit(1); });
