"""Text of each kind that must not be published, with words in it that nothing else has; and text that must stay.

None of the keys and tokens ever was one.
"""

from __future__ import annotations

CANARY = "canary"

CANARIES = {
    "a home folder": "/home/canaryuser/canary-project/canary kernels/canary.cl",
    "a folder": "/scratch/canary/run7",
    "a Windows path": r"C:\Users\canaryuser\canary.bin",
    "a share": r"\\canaryserver\canary\x",
    "a server": r"\\canarynode",
    "a tilde": "~canaryuser/canary.txt",
    "an include path": "-I/opt/canary/include",
    "a URL": "https://canaryuser:canarysecret@canaryhost/canary?token=canary",
    "user and host": "canaryuser@canaryhost",
    "a path as an address spells it": "%2Fhome%2Fcanaryuser%2Fcanary.cl",
    "a machine's own name": "LAPTOP-7CANARY8",
    "a machine's address as its name": "ip-10-77-66-55",
    "user and address": "canaryuser@8.77.66.55",
    "a mail address": "canary.person+x@canary-mail.example",
    "a repository": "git@github.com:canaryuser/canary.git",
    "user of a domain": r"CANARYCORP\canaryuser",
    "a host": "gpu7.canary.example.com",
    "a .local host": "canarynode.local",
    "a .lan host": "canarynode.lan:8443",
    "an address of a host": "10.77.66.55",
    "an address that begins low": "8.177.166.55:8080",
    "an IPv6 address": "fe80::ca4a:7fff:fe23:890a%eth0",
    "a whole IPv6 address": "2001:0db8:ca4a:7fff:0000:ff00:0042:8329",
    "a MAC address": "ca:fe:ca:4a:7a:11",
    "a MAC address with dashes": "CA-FE-CA-4A-7A-11",
    "a MAC address with dots": "cafe.ca4a.7a11",
    "a SID": "S-1-5-21-3623811015-3361044348-30300820-1013",
    "a telephone": "+49 170 5557734",
    "a telephone in a name": "+49_170_5557734",
    "a serial number in a name": "S/N:_0CANARY4711",
    "a telephone without blanks": "+491705557734",
    "a telephone in brackets": "(555) 555-7734",
    "a telephone with dashes": "555-557-7341",
    "a device's UUID": "GPU-ca9a71e5-c0de-4bad-8f00-d15ea5ed0042",
    "a device's short UUID": "GPU-ca9a71e5c0de4bad",
    "a UUID": "ca9a71e5-c0de-4bad-8f00-d15ea5ed0042",
    "a serial number": "serial number: 0CANARY4711",
    "another serial number": "S/N: 0CANARY4711",
    "a pointer": "0x7fca4a00caca",
    "a pointer with colons": "0x7f:ca:4a:00:ca:ca",
    "a pointer with separators": "0x7fca_4a00_caca",
    "a bare pointer": "00007FCA4A00CACA",
    "a bare short pointer": "7fca4a00caca",
    "a bare pointer with separators": "7fca_4a00_caca",
    "a bare pointer in halves": "00007fca`4a00caca",
    "the environment": "CANARY_PATH=canary",
    "a password": "--password canarysecret",
    "a key": "aws_secret_access_key=canary",
    "a key in JSON": '"private_key_id": "canary0123456789abcdef"',
    "a header": "Authorization: Bearer canary",
    "a bearer": "Bearer canary-canary-canary",
    "a cookie": "Cookie: session=canary; other=canary",
    "a token of GitHub": "ghp_canarycanarycanarycanary1234",
    "an OAuth token of GitHub": "gho_canarycanarycanarycanary1234",
    "a new token of GitHub": "github_pat_11CANARY0canary_canarycanarycanary",
    "a token of HF": "hf_canarycanarycanarycanarycanarycanary",
    "a key of AWS": "AKIACANARYCANARY0000",
    "a passing key of AWS": "ASIACANARYCANARY0000",
    "a key of AWS and its secret": "AKIACANARYCANARY0000:cAnArYtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1",
    "a key of Google": "AIzaSyCanaryCanaryCanaryCanaryCanary123",
    "a token of Google": "ya29.a0CanaryCanary_canary-canary",
    "a connection string of Azure": "DefaultEndpointsProtocol=https;AccountName=canary;AccountKey=Canary0==;"
    "EndpointSuffix=core.canary.net",
    "a signature of Azure": "sv=2022-11-02&ss=b&sig=CaNaRy0CaNaRy1CaNaRy2%3D",
    "a token of Slack": "xoxb-123456789012-canarycanary",
    "a hook of Slack": "hooks.slack.com/services/T0CANARY/B0CANARY/canarycanary",
    "a JWT": "eyJhbGciOiJjYW5hcnkifQ.eyJzdWIiOiJjYW5hcnkifQ.Canary0canary1canary2canary3canary4canary5c",
    "the head of a JWT": "eyJhbGciOiJjYW5hcnkifQ",
    "the body of a JWT": "eyJzdWIiOiJjYW5hcnkifQ",
    "the signature of a JWT": "SflKxwCaNaRyKKF2QT4fwpMeJf36POk6yJV_adQssw5c",
    "a key block": r"-----BEGIN PRIVATE KEY-----\nMIIECanaryBAQ\n-----END PRIVATE KEY-----\n",
    "an instance of EC2": "i-0ca9a71e5c0de4bad",
    "a volume of EC2": "vol-ca9a71e5",
    "an ARN": "arn:aws:iam::123456789012:user/canary",
    "a resource of Google": "projects/canary/zones/us-central1-a/instances/vm1",
    "a resource of Azure": "subscriptions/ca9a71e5-c0de-4bad-8f00-d15ea5ed0042/resourceGroups/canary",
    "a machine of EC2": "ec2-8-77-66-55.compute-1.amazonaws.com",
    "a node of GKE": "gke-canary-default-pool-3f4e8a9b-x2k4",
    "a node of AKS": "aks-canary-12345678-vmss000001",
    "a node of a Cray": "x4711c0s5b0n1",
    "a person's machine": "canary-laptop",
    "a person's Mac": "Canarys-MacBook-Pro.fritz.box",
    "a pod": "canary-7f9c8d6b5-x2k4z",
    "a pod by its kind": "pod/canary-0",
    "a container": "container_id: ca9a71e5c0de",
    "a container of Docker": "docker-ca9a71e5c0de4bad8f00d15ea5ed0042ca9a71e5c0de4bad8f00d15ea5ed0042.scope",
    "a key of Weights & Biases": "wandb login ca9a71e5c0de4bad8f00d15ea5ed0042ca9a71e5",
    "a new key of Weights & Biases": "wandb_v1_canarycanarycanary",
    "a key of OpenAI": "sk-proj-canarycanarycanary",
    "a key of Anthropic": "sk-ant-api03-canarycanarycanary",
    "a key of NVIDIA": "nvapi-canarycanarycanary",
    "a token of npm": "npm_canarycanarycanary",
    "a token of PyPI": "pypi-AgEIcHlwaS5vcmcCcanary",
    "a token of Telegram": "123456789:AAHdqTcvcanaryGWJxfSeofSAs0K5PALDsaw",
    "a licence key": "CANAR-YCAN4-RYCAN-ARYC1-ANARY",
    "an API key": "API key: canary",
    "a key of SSH": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIcanary canary",
    "a fingerprint of SSH": "MD5:ca:fe:ca:4a:7a:11:28:2d:36:63:1b:56:4d:eb:df:a6",
    "a user's name": "user=canary",
    "a user's name as a word": "login: canary",
    "a user's name as an option": "--user canary",
    "a user's name in JSON": '"username": "canary"',
    "a user's name in a name": "user:_canary",
    "a user by number": "uid=1000(canary) gid=1000(canary) groups=1000(canary),27(canary)",
    "an account": "logged in as canary",
    "an author": "Author: A Canary Person",
    "a machine's name as a word": "hostname: canary7",
    "a machine's name as an option": "--host canary7",
    "machines' names": "nodelist=canary[1-4],canaryb",
    "a mail address in an address": "canary%40mail",
    "a mail address as a person writes it": "canary(at)canary(dot)net",
    "a folder of a variable": "$HOME/canary/x.cl",
    "a telephone with its area in brackets": "(030) 5557734",
    "a telephone with a zero in brackets": "+49(0)305557734",
    "a telephone as dialled": "0049 30 5557734",
    "a telephone of the USA": "1-800-555-7734",
    "a telephone after its word": "phone: 555-7734",
    "a line of a key block": "MIIEowIBAAKCAQEAx3Jq8bVt2nQ5ZrLk7P0mCaNaRyTfSdGhJkLz1XcVbNm4A6R+",
}
SOME = tuple(CANARIES)[::8]
"""For a look at what is drawn; `tests/test_canaries.py` has all of them."""
WORDS = (
    *(
        "canary",
        "77.66.55",
        "77-66-55",
        "177.166.55",
        "7fca4a00caca",
        "7f:ca:4a",
        "7fca_4a00",
        "7fca`4a00",
        "ca4a:7fff",
        "ca:fe:ca:4a",
        "ca9a71e5",
    ),
    *("ca-fe-ca-4a", "cafe.ca4a", "3623811015", "3361044348", "5557734", "555-7734", "555-557-7341", "d15ea5ed0042"),
    *("ca9a71e5", "jjyw5hcnkifq", "k7mdeng", "aakcaqeax3jq8", "x4711c0", "305557734", "canar-ycan4"),
)
PROMPT = "canaryperson@canarynode:~/run$ caffe time\nRunning on machine: canarynode\nUSER=canaryperson\n"
BY_NAME = "canaryperson on canarynode"
"""Without a form: known only because the prompt stands in the log."""

IN_MESSAGES = {"a bare host": "@canaryhost", "a bare user": "canaryuser@"}
"""Cut in messages; kept in names, where ``@`` is their own: ``loc:@conv``, symbols of MLIR."""

KEPT = {
    "@ between blanks": "CPU @ 3.20GHz",
    "a version like an address": "8.6.1.6",
    "a hash": "3f2a9c1d4e5b6a703f2a9c1d4e5b6a70",
    "a serial number without its word": "PN4711-0815",
    "a place on the bus": "0000:03:00.0",
    "a short number": "555-7734",
    "a number with dots": "555.555.7734",
    "ten digits": "0305557734",
    "a container's short id": "3f4e8a9b2c1d",
    "a hash of 40 letters": "0123456789abcdef0123456789abcdef01234567",
    "a key of 32 letters without its word": "key-0123456789abcdef0123456789abcdef",
    "a pod of a job": "train-job-0-xk2p9",
    "an option of one letter": "-u somebody",
    "an image": "docker.io/somebody/miopen:latest",
    "four groups of four digits": "4111-1111-1111-1111",
    "half a path": "~somebody",
    "a word that passes": "pass=forward",
    "times of a shell": "user: 12.5 sys: 0.5",
    "a user that is nobody": "user=root",
    "a host that is no machine": "host: localhost",
    "digits alone": "123456789012",
    "six pairs of decimals": "16-16-16-16-16-16",
}
"""Kept, each for the reason that docs/privacy.md tells: too like what a trace is about."""

NAMES = (
    *("tower_0/v/cg", "v/tower_0/cg/resnet_v10/conv2d/Conv2D", "res2a_branch2a", "conv1/1x1"),
    *("InceptionV3/InceptionV3/Mixed_5b/Branch_0/Conv2d_0a_1x1/Conv2D", "inception_3a/3x3_reduce", "features.1.conv.0"),
    *("InceptionV3/InceptionV3/Mixed5b/Branch0/Conv2d/Conv2D", "model.layers.0.self_attn.q_proj", "blocks.0.se"),
    *("layer3.0.nl", "block.attention.in", "loc:@conv", "token_type_ids:0", "512-512-1024", "k_1x1_0x0_64_128"),
    *("ConvAsm1x1U", "ConvHipImplicitGemmForwardV4R4Xdlops", "ConvHipImplicitGemm3DGroupFwdXdlops"),
    "igemm_fwd_gtcx2_nhwc_fp16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2_ta1x8x4x1_1x4x1x64_tb1x8x2x1_1x4x1x64",
    "Cijk_Ailk_Bljk_SB_MT64x64x8_SE_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1_AMAS0_ASE_ASGT_ASAE01_ASCE01_ASEM1_WG16_16_1",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper_tIfNS0_11sum_functorIfffEEEEjfLi4EEEEEvT1_",
    "_ZN7cutlass6KernelI66cutlass_80_tensorop_s1688gemm_128x64_16x4_tn_align4EEvNT_6ParamsE",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, at::detail::Array<char*, 1> >",
    "DeviceGroupedConvFwdMultipleD_Xdl_CShuffle<256, 128, 256, 32, Default>",
    "std::pair<a::b, c::d>", "miopenSp3AsmConv_v21_1_3_gfx9_fp32_stride1", "kernel_3f2a9c1d4e5b6a70",
    "Op3f2a9c1d4e5b6a70.kd", "fused_7fca4a00beef", "triton__0d1d2d3de", "2.9.0.1", "3.6.0.12", "12:34:56",
    "3x99x99x11x11x16x23x23x1xNCHWxFP32x0x0x4x4x1x1x1xFxDefault",
    "3-99-99-11x11-16-23-23-1-0x0-4x4-1x1-0-NCHW-FP32-F", "gfx906:sramecc+:xnack-", "10:46:48.020552",
    "64x3x224x224", "ConvBinWinogradRxSf3x2", "torch.nn.functional.conv2d",
    "gridwise_convolution_implicit_gemm_v4r4_nchw_kcyx_nkhw", "MIOpenConvUniBatchNormActiv", "a+b", "c++", "1e+10",
    "30-12-34", "1-3-224-224", "1-512-512-1024", "512-512-1024", "user_embedding/lookup", "user_id:0", "host_name:0",
    "login_layer", "user1", "phone_embedding", "i-conv1", "vol-conv3d", "sg-00000000", "lt-deadbeef",
    "resnet-50-fpn-bn2b5",
    "Cijk_Ailk_Bljk_HB_MT128x128x16_SN_1LDSB0_GRVW8_WG32_8_1_3f2a9c1d4e5b6a703f2a9c1d4e5b6a703f2a9c1d",
    "Cijk_Ailk_Bljk_SB_MT128x128x16_MI32x32x2x1",
    "f(064)", "a(0) 1234", "pods_conv", "sk_conv", "hf_attention", "xai_layer", "author_emb:0", "container:conv",
)  # fmt: skip
"""What the filter must never touch, in any field."""
LAYERS = ("/block1/conv1", "/layer1/layer1.0/conv1/Conv", "x/y/z")
"""Nor these, where layers have their names."""


def leaks(data: bytes | str) -> list[str]:
    """Each canary's word in ``data``, with what stands around it."""
    text = (data.decode("utf-8", "replace") if isinstance(data, bytes) else data).lower()
    found = []
    for word in WORDS:
        at = text.find(word)
        if at >= 0:
            found.append(text[max(0, at - 60) : at + 60])
    return found
